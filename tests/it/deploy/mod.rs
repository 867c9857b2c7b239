//! What is in `deploy/`: under systemd, as the first process of a container, in the image's root, in Kubernetes.
//!
//! `.ci/deploy` gets the checkers. Where `LEAFHOPPER_DEPLOY=required` (CI sets it once they are there) a missing one is
//! a failure. Else the test is not tried, and that is said past the capture of a test's output.

mod chart;
mod compose;
mod connections;
mod files;
mod first_process;
mod image;
mod namespace;
mod systemd;
mod unit;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::clients::not_tried;

/// The repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A checker, if it is here: from where `.ci/deploy` puts it, or from the system.
fn checker(name: &str) -> Option<PathBuf> {
    let local =
        ["python/bin", "node_modules/.bin"].map(|folder| root().join(".deploy").join(folder));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = local.into_iter().chain(std::env::split_paths(&path));
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()));
    if found.is_none() {
        not_tried(name, ".ci/deploy", "LEAFHOPPER_DEPLOY");
    }
    found
}

/// Runs it in the repository's root, with this to read.
fn run(command: &mut Command, stdin: &str) -> Output {
    command.current_dir(root()).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that does not read is done already.
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

/// Says that this machine, or this user of it, can't do it: nothing can be got for that.
fn not_here(what: &str) {
    let mut past_the_capture = std::io::stderr();
    writeln!(past_the_capture, "NOT TRIED: {what}").unwrap();
}
