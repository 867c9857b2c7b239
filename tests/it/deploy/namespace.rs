//! A PID namespace, as a container has: its first process, and signals to it from outside.

use std::process::Command;

use rustix::process::Pid;

use super::not_here;
use crate::harness::wait::until;

/// The words that start a program as the first process of a namespace: root may, and others where the kernel lets them.
pub(super) fn unshare() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [
        &["unshare", "--pid", "--fork", "--kill-child"],
        &[
            "unshare",
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--kill-child",
        ],
    ];
    let works = |words: &&&[&str]| {
        let tried = Command::new(words[0])
            .args(&words[1..])
            .arg("true")
            .output();
        tried.is_ok_and(|output| output.status.success())
    };
    let found = ways.iter().find(works).copied();
    if found.is_none() {
        not_here("no PID namespace can be made here");
    }
    found
}

/// The one process that this one has started.
pub(super) async fn child_of(parent: Pid) -> Pid {
    let file = format!("/proc/{0}/task/{0}/children", parent.as_raw_nonzero());
    until("there is a child", async || {
        let children = std::fs::read_to_string(&file).unwrap();
        let child = children.split_whitespace().next();
        let pid = child.and_then(|pid| Pid::from_raw(pid.parse().unwrap()));
        pid.ok_or(())
    })
    .await
}
