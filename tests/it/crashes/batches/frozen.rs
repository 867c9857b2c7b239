//! An instance is frozen on a batch's way for longer than its lease, another one takes the batch to its end, and the
//! first one wakes up: it changes nothing and sends nothing.

use rustix::process::Signal;
use serde_json::Value;

use super::{BatchLife, End, Path};
use crate::{
    crashes::{PATIENCE, frozen::frozen},
    harness::{app::keyed, wait::until_within},
};

use End::{Fails, Succeeds};

const OF_A_FAILURE: &[Path] = &[
    (
        0,
        "",
        &[
            "read marks of batches: done",
            "look at batches: open",
            "look at batches: done",
            "cancel calls of cancelled batches: before",
        ],
    ),
    (
        1,
        "",
        &[
            "read marks of batches: done",
            "look at batches: open",
            "look at batches: done",
            "tear batches down: open",
            "tear batches down: next",
            "tear batches down: done",
        ],
    ),
    (
        3,
        "",
        &["tear batches down: next", "let follow-ups go: before"],
    ),
    (
        4,
        "",
        &["look at batches: open", "let follow-ups go: before"],
    ),
];

const OF_A_SUCCESS: &[Path] = &[
    (
        1,
        "",
        &[
            "read marks of batches: done",
            "look at batches: open",
            "look at batches: done",
            "let follow-ups go: before",
        ],
    ),
    (1, "look at batches: done", &["look at batches: open"]),
    (2, "", &["look at batches: open"]),
];

/// All that the tables and the leaf have to say of the batch.
async fn snapshot(life: &BatchLife) -> (Vec<Value>, usize) {
    let batch = life.batch;
    let mut rows = Vec::new();
    for sql in [
        format!("SELECT * FROM leafhopper.batch WHERE id = '{batch}'"),
        format!("SELECT * FROM leafhopper.call WHERE batch_id = '{batch}' ORDER BY id"),
        "SELECT * FROM leafhopper.result WHERE key <> 'next' ORDER BY seq".to_owned(),
    ] {
        rows.extend(life.bed.app.rows(&sql).await);
    }
    let requests = life.bed.leaf.all_requests();
    let changes = requests
        .iter()
        .filter(|request| request.method != "GET" && request.key != "next");
    (rows, changes.count())
}

/// What has come of the batch, and what the one that woke up has changed of it.
async fn story(life: &BatchLife, path: &str) -> String {
    let sidecars = async {
        let frozen = frozen(&life.config, path).await;
        // A request that it had begun may be written when it wakes up: nothing can be asked between the last look at the
        // clock and the last byte. What it has claimed and not begun is not sent.
        let claimed = "SELECT call_id FROM leafhopper.dispatch WHERE state = 'dispatching'";
        let begun = life.bed.app.rows(claimed).await.len();
        let other = life.config.start().await;
        life.until_finished().await;
        (frozen, other, begun)
    };
    let ((frozen, mut other, begun), ()) = tokio::join!(sidecars, life.unfolds());
    let before = snapshot(life).await;
    other.kill();
    frozen.signal(Signal::CONT);
    frozen.until_ready().await;
    // When it has taken another batch to its end, it has no more of this one in hand.
    let next = uuid::Uuid::new_v4();
    life.bed.app.insert(keyed("leaf", "next").batch(next)).await;
    until_within(PATIENCE, "the next batch is finished", async || {
        let sql = format!(
            "SELECT * FROM leafhopper.batch WHERE id = '{next}' AND finished_at IS NOT NULL"
        );
        let row = life.bed.app.rows(&sql).await;
        if row.is_empty() { Err(row) } else { Ok(()) }
    })
    .await;
    let after = snapshot(life).await;
    drop(frozen);
    let told = life.told().await;
    let sent = after.1 - before.1;
    if after.0 == before.0 && sent <= begun {
        told
    } else {
        format!("{told}, but it changed {before:#?}\n  to {after:#?}")
    }
}

async fn at_each(end: End, paths: &[Path]) {
    let stories = end.paths(paths).into_iter().map(async |path| {
        let life = BatchLife::new(end, false).await;
        let (story, expected) = (story(&life, &path).await, end.expected());
        let wrong =
            (story != expected).then(|| format!("{path}:\n  {story}, and not\n  {expected}"));
        (life, wrong)
    });
    let wrong = super::wrong_of(stories).await;
    assert!(wrong.is_empty(), "{end:?}\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn one_that_wakes_up_changes_nothing_of_a_batch_that_another_has_torn_down() {
    at_each(Fails, OF_A_FAILURE).await;
}

#[tokio::test]
async fn one_that_wakes_up_changes_nothing_of_a_batch_that_has_succeeded_meanwhile() {
    at_each(Succeeds, OF_A_SUCCESS).await;
}
