//! The README's examples in other languages, as they stand there, with the languages' own PostgreSQL clients.
//!
//! `.ci/clients` gets the clients. Where `LEAFHOPPER_CLIENTS=required` (CI sets it once they are there) a missing one
//! is a failure. Else the example is not tried, and that is said past the capture of a test's output.

use std::{
    io::Write as _,
    process::{Command, Output},
};

use serde_json::json;

use crate::harness::Bed;

/// Where `.ci/clients` puts them.
const LOCAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.clients");

#[tokio::test]
async fn the_readme_s_python_writes_the_call() {
    let block = block("python");
    let program = format!(
        "import sys, psycopg\nconn = psycopg.connect(sys.argv[1])\n{block}\nconn.close()\n"
    );
    let python = python_with("psycopg");
    try_in(python, |python, url| {
        Command::new(python).args(["-c", &program, url]).output()
    })
    .await;
}

#[tokio::test]
async fn the_readme_s_javascript_writes_the_call() {
    let block = block("js");
    let program = format!(
        "const pg = require('pg');\n(async () => {{\n\
         const client = new pg.Client({{ connectionString: process.argv[1] }});\nawait client.connect();\n\
         {block}\nawait client.end();\n}})();\n"
    );
    let node = || {
        let mut node = Command::new("node");
        node.env(
            "NODE_PATH",
            format!("{LOCAL}/node_modules:/usr/share/nodejs"),
        );
        node
    };
    let found = runs(node().args(["-e", "require('pg')"])).then(|| "node".to_owned());
    let found = found.or_else(|| missing("Node with pg"));
    try_in(found, |_, url| node().args(["-e", &program, url]).output()).await;
}

/// The README's only block in that language.
fn block(language: &str) -> &'static str {
    let readme = include_str!("../../README.md");
    let fence = format!("```{language}\n");
    let mut blocks = readme.split(&fence).skip(1);
    let block = blocks.next().unwrap().split("```").next().unwrap();
    assert_eq!(blocks.count(), 0, "one more block in {language}");
    block
}

/// Whether it can be run.
pub(crate) fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A Python that has this module. Where there is none, [`missing`].
pub(crate) fn python_with(module: &str) -> Option<String> {
    let local = format!("{LOCAL}/python/bin/python3");
    let mut pythons = [&local, "/usr/bin/python3", "python3"].into_iter();
    let import = format!("import {module}");
    let found = pythons.find(|python| runs(Command::new(python).args(["-c", &import])));
    found
        .map(str::to_owned)
        .or_else(|| missing(&format!("Python with {module}")))
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

/// Runs it against a database, if the interpreter is there.
async fn try_in(
    interpreter: Option<String>,
    run: impl FnOnce(&str, &str) -> std::io::Result<Output>,
) {
    let Some(interpreter) = interpreter else {
        return;
    };
    let bed = Bed::new().await;
    let output = run(&interpreter, &bed.database.url).unwrap();
    assert!(output.status.success(), "{output:?}");
    let calls = "SELECT leaf, key, path, body FROM leafhopper.outbox";
    let call = json!({
        "leaf": "pay", "key": "order:4711:charge", "path": "/charges", "body": { "amount": 4200 },
    });
    assert_eq!(bed.app.rows(calls).await, [call]);
}
