//! Languages and clients that tests need and that may be missing; and the README's own piece of Python.
//!
//! `.ci/clients` gets them. Where `LEAFHOPPER_CLIENTS=required` (CI sets it once they are there) a missing one
//! is a failure. Else what needs it is not tried, and that is said past the capture of a test's output.

use std::{io::Write as _, process::Command};

use serde_json::json;

use crate::harness::Bed;

/// Where `.ci/clients` puts what is not installed.
pub(crate) const LOCAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.clients");

/// Where the examples are.
pub(crate) const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

#[tokio::test]
async fn the_readme_s_python_writes_the_call() {
    let readme = include_str!("../../README.md");
    let mut blocks = readme.split("```python\n").skip(1);
    let block = blocks.next().unwrap().split("```").next().unwrap();
    assert_eq!(blocks.count(), 0, "one more block");
    let Some(python) = python_with("psycopg") else {
        return;
    };
    let program = format!(
        "import sys, psycopg\nconn = psycopg.connect(sys.argv[1])\n{block}\nconn.close()\n"
    );
    let bed = Bed::new().await;
    let mut python = Command::new(python);
    let output = python.args(["-c", &program, &bed.database.url]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let calls = "SELECT leaf, key, path, body FROM leafhopper.outbox";
    let call = json!({
        "leaf": "pay", "key": "order:4711:charge", "path": "/charges", "body": { "amount": 4200 },
    });
    assert_eq!(bed.app.rows(calls).await, [call]);
}

/// Whether it can be run.
pub(crate) fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Where Node looks for modules.
pub(crate) fn node_path() -> String {
    format!("{LOCAL}/node/node_modules:/usr/share/nodejs")
}

/// A Node that finds this module by [`node_path`]. Where there is none, [`missing`].
pub(crate) fn node_with(module: &str) -> Option<String> {
    let mut node = Command::new("node");
    node.args(["-e", &format!("require('{module}')")]);
    let found = runs(node.env("NODE_PATH", node_path())).then(|| "node".to_owned());
    found.or_else(|| missing(&format!("Node with {module}")))
}

/// A Python that has these modules. Where there is none, [`missing`].
pub(crate) fn python_with(modules: &str) -> Option<String> {
    let local = format!("{LOCAL}/python/bin/python3");
    let mut pythons = [&local, "/usr/bin/python3", "python3"].into_iter();
    let import = format!("import {modules}");
    let found = pythons.find(|python| runs(Command::new(python).args(["-c", &import])));
    found
        .map(str::to_owned)
        .or_else(|| missing(&format!("Python with {modules}")))
}

/// Says that something is not tried; where it has to be, that is a failure.
pub(crate) fn missing(what: &str) -> Option<String> {
    not_tried(what, ".ci/clients", "LEAFHOPPER_CLIENTS");
    None
}

/// Says that something is not tried; where the variable is `required`, that is a failure.
pub(crate) fn not_tried(what: &str, script: &str, variable: &str) {
    let missing = format!("{what} is not here: {script} gets it");
    let is_required = std::env::var(variable).is_ok_and(|value| value == "required");
    assert!(!is_required, "{missing}");
    let mut past_the_capture = std::io::stderr();
    writeln!(past_the_capture, "NOT TRIED: {missing}").unwrap();
}
