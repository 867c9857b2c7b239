//! The demo: what it prints can be tried, and nothing of it outlives it.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use serde_json::json;

use crate::harness::{app::App, wait::until};

const STILL_RUNNING: &str = "Still running, until Ctrl-C.";

/// A demo that stays up.
struct Demo {
    child: Child,
    /// What it said until it had nothing more to say.
    said: Vec<String>,
}

impl Demo {
    /// Waits for the end of its story, too.
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leafhopper"))
            .arg("demo")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said: Vec<String> = Vec::new();
        let mut is_last = false;
        for line in lines.map(Result::unwrap) {
            is_last |= line == STILL_RUNNING;
            let ends = is_last && line.is_empty();
            said.push(line);
            if ends {
                break;
            }
        }
        assert!(is_last, "it ended: {said:#?}");
        Self { child, said }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What is left of it: its folder, and processes that name it (PostgreSQL, the watchdogs, the sidecar).
    fn remains(&self) -> Result<(), Vec<String>> {
        let config = self
            .said
            .iter()
            .find_map(|line| line.split_once("LEAFHOPPER_CONFIG='"));
        let (folder, _) = config.unwrap().1.rsplit_once('/').unwrap();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut found: Vec<String> = processes
            .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .filter(|line| line.contains(folder))
            .collect();
        if Path::new(folder).exists() {
            found.push(folder.to_owned());
        }
        if found.is_empty() { Ok(()) } else { Err(found) }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It has ended, unless its test failed.
        self.child.kill().ok();
    }
}

/// The rows that the story shows under this line: leaf, key, and where it stands.
fn shown(story: &[String], head: &str) -> Vec<String> {
    let rows = story.iter().skip_while(|line| line.trim() != head).skip(1);
    rows.take_while(|line| !line.is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            [&words[1..3], &words[6..]].concat().join(" ")
        })
        .collect()
}

/// A batch that fails with a sibling in flight, its teardown, and the same keys again.
fn check_the_batch(story: &[String]) {
    let says = |line: &str| {
        let found = story.iter().any(|said| said.trim() == line);
        assert!(found, "{line:?} in {story:#?}");
    };
    assert_eq!(
        shown(story, "Batch Gil's shop: cancelling"),
        [
            "git site:48:repo confirmed",
            "pay site:48:charge confirmed",
            "host site:48:site dispatching",
            "host site:48:domain cancelled, batch_cancelled",
            "dns site:48:dns failed, rejected",
            "mail site:48:sorry pending, waits_for_batch",
        ]
    );
    says("DELETEs that the leaves have seen: 0.");
    assert_eq!(
        shown(story, "Batch Gil's shop: cancelled"),
        [
            "git site:48:repo confirmed, undone",
            "pay site:48:charge confirmed, undone",
            "host site:48:site confirmed, undone",
            "host site:48:domain cancelled, batch_cancelled",
            "dns site:48:dns failed, rejected",
            "mail site:48:sorry confirmed",
            "host site:48:site:undo:1 confirmed",
            "pay site:48:charge:undo:1 confirmed",
            "git site:48:repo:undo:1 confirmed",
        ]
    );
    says("DELETEs that the leaves have seen: /host/sites/2, /pay/charges/43, /git/repos/gil.");
    says(
        "Of the batch's effects 0 stand. In the leaves' ledger: 0 sites, 0 charges, 0 repositories of it.",
    );
    for line in [
        "git site:48:repo     1 undone, 2 stands",
        "pay site:48:charge   1 undone, 2 stands",
        "host site:48:site    1 undone, 2 stands",
        "mail site:48:sorry   1 stands",
        "dns site:48:dns      1 stands",
        "host site:48:domain  1 stands",
    ] {
        says(line);
    }
    let another = "Idempotency-Key: site:48:charge, then lh-";
    assert!(
        story.iter().any(|line| line.trim().starts_with(another)),
        "{story:#?}"
    );
}

#[tokio::test]
async fn a_demo_s_story_ends_and_what_it_prints_can_be_tried() {
    let mut demo = Demo::start();
    let end = demo.said.iter().position(|line| line == STILL_RUNNING);
    let (story, rest) = demo.said.split_at(end.unwrap());
    let long: Vec<_> = story
        .iter()
        .filter(|line| line.chars().count() > 110)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
    let agrees = "0 doubled, 0 missing, 0 unknown.";
    assert!(
        story.iter().any(|line| line.ends_with(agrees)),
        "{story:#?}"
    );
    check_the_batch(story);
    let commands = rest
        .iter()
        .skip_while(|line| !line.starts_with("In another terminal"));
    let commands: Vec<&str> = commands.skip(1).map(String::as_str).collect();
    let tried = Command::new("sh")
        .args(["-ec", &commands.join("\n")])
        .output()
        .unwrap();
    assert!(tried.status.success(), "{commands:#?}: {tried:?}");
    let url = rest
        .iter()
        .find_map(|line| line.strip_prefix("  the database   "));
    let app = App::connect(url.unwrap()).await;
    let batches =
        "SELECT state, finished_at IS NOT NULL AS finished FROM leafhopper.batch ORDER BY id";
    assert_eq!(
        json!(app.rows(batches).await),
        json!([{ "state": "cancelled", "finished": true }, { "state": "succeeded", "finished": true }])
    );
    let adopted = json!([{ "state": "confirmed", "attempts": 1, "source": "adopted" }]);
    until("the call that was printed is adopted", async || {
        let rows = "SELECT c.state, c.attempts, r.source FROM leafhopper.call c \
                      LEFT JOIN leafhopper.result r ON r.call_id = c.id WHERE c.key = 'mine'";
        match json!(app.rows(rows).await) {
            rows if rows == adopted => Ok(()),
            rows => Err(rows),
        }
    })
    .await;
    demo.signal(Signal::INT);
    let status = demo.child.wait().unwrap();
    assert!(status.success(), "{status}");
    until("all of it is gone", async || demo.remains()).await;
}

#[tokio::test]
async fn a_demo_that_is_killed_leaves_nothing_behind() {
    let mut demo = Demo::start();
    assert!(demo.remains().is_err());
    demo.signal(Signal::KILL);
    demo.child.wait().unwrap();
    until("all of it is gone", async || demo.remains()).await;
}
