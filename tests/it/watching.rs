//! The command line beside single looks: lists that are watched, completions, the manual, and a configuration whose
//! leaves are broken.

use std::{
    io::{BufRead as _, BufReader},
    process::Command,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    commands::{stderr, stdout},
    harness::{
        Bed,
        app::keyed,
        wait::{until, until_within},
    },
};

/// Nothing of it but the database can be used: an unknown key, no URL, a secret that is not there.
const BROKEN: &str =
    "[leaf.broken]\nbase_irl = \"x\"\nauth = { bearer = { env = \"LEAFHOPPER_NOT_SET\" } }\n";

#[tokio::test]
async fn a_watched_list_shows_what_changes_until_it_is_interrupted_whatever_is_wrong_with_the_leaves()
 {
    let bed = Bed::new().await;
    let id = bed.app.insert(keyed("broken", "first")).await;
    let here = bed.config("").sidecar();
    here.rewrite_text(&format!(
        "[database]\nurl = {:?}\n\n{BROKEN}",
        bed.database.url
    ));
    let mut watch = here.piped(&["calls", "--watch=1", "--json"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(
        (first[0]["id"].as_i64(), &first[1]),
        (Some(id), &Value::Null)
    );
    assert_eq!(first[0]["reason"], json!("leaf_unknown"));
    let cancelled = here
        .command(&["cancel", &id.to_string(), "--reason", "not wanted"])
        .await;
    assert!(cancelled.status.success(), "{cancelled:?}");
    while next()[0]["state"] != json!("cancelled") {}
    // The interrupt comes while a list is under way, and the database does not answer it.
    let lock = "BEGIN; LOCK TABLE leafhopper.outbox IN ACCESS EXCLUSIVE MODE";
    bed.app.execute(lock).await;
    until("a list waits for the lock", async || {
        let sql =
            "SELECT 1 FROM pg_locks WHERE relation = 'leafhopper.outbox'::regclass AND NOT granted";
        let waiting = bed.app.rows(sql).await;
        if waiting.is_empty() {
            Err(waiting)
        } else {
            Ok(())
        }
    })
    .await;
    kill_process(Pid::from_child(&watch), Signal::INT).unwrap();
    let ended = until_within(Duration::from_secs(15), "it has ended", async || {
        watch.try_wait().unwrap().ok_or("it watches on")
    })
    .await;
    assert!(ended.success(), "{ended}");
    bed.app.execute("ROLLBACK").await;

    for arguments in [
        &["show", &id.to_string()] as &[&str],
        &["batches"],
        &["pause", "broken", "--reason", "it is broken"],
        &["resume", "broken", "--reason", "it is mended"],
    ] {
        let output = here.command(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    // Not even a file is needed where the environment names the database.
    let folder = std::env::temp_dir().join(format!("leafhopper-no-file-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut list = Command::new(env!("CARGO_BIN_EXE_leafhopper"));
    list.args(["calls", "--json"]).current_dir(&folder);
    list.env_remove("LEAFHOPPER_CONFIG")
        .env("DATABASE_URL", &bed.database.url);
    let listed = list.output().unwrap();
    assert!(stdout(&listed).contains("\"first\""), "{listed:?}");
    let nowhere = list.env_remove("DATABASE_URL").output().unwrap();
    assert!(stderr(&nowhere).contains("leafhopper.toml"), "{nowhere:?}");
    std::fs::remove_dir(folder).unwrap();

    let check = here.command(&["check"]).await;
    assert_eq!(check.status.code(), Some(1));
    let said = stdout(&check) + &stderr(&check);
    for part in ["base_irl", "LEAFHOPPER_NOT_SET"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[tokio::test]
async fn shells_and_the_manual_know_every_command() {
    let bed = Bed::new().await;
    let here = bed.config("").sidecar();
    let commands = ["calls", "show", "resolve", "cancel-batch", "resume"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&here.command(&["completions", shell]).await);
        for command in commands {
            assert!(script.contains(command), "{command} for {shell}");
        }
        if shell == "bash" {
            let file = std::env::temp_dir().join(format!("completions-{}", std::process::id()));
            std::fs::write(&file, script).unwrap();
            let checked = Command::new("bash").arg("-n").arg(&file).output().unwrap();
            assert!(checked.status.success(), "{checked:?}");
            std::fs::remove_file(file).unwrap();
        }
    }
    let page = stdout(&here.command(&["man"]).await);
    assert!(
        page.starts_with(".ie") && page.contains(".TH leafhopper 1"),
        "{page}"
    );
    assert!(page.contains("Exit codes: 0 done"), "{page}");
    let folder = std::env::temp_dir().join(format!("leafhopper-man-{}", std::process::id()));
    let written = here
        .command(&["man", "--dir", folder.to_str().unwrap()])
        .await;
    assert!(written.status.success(), "{written:?}");
    for command in commands {
        let page = std::fs::read_to_string(folder.join(format!("leafhopper-{command}.1")));
        assert!(page.unwrap().contains(".SH SYNOPSIS"), "{command}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
