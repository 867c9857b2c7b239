//! Whether the lists of steps are complete.

use std::{collections::BTreeSet, fs, path::Path};

use super::{
    ANSWERED, LOST, Life, Nature, PATIENCE, PROBED, RESENT, SETTLED, TAKEN_OVER, batches, journal,
    named,
};
use crate::harness::{sidecar::Sidecar, wait::until_within};

use Nature::{Asked, Keyed, Parking};

/// Statements of the loops that are neither about one call between its claim and its record nor about a batch: each
/// repeats by itself.
const OTHER_LOOPS: &[&str] = &[
    "announce sleep",
    "announce that it is awake",
    "ask the server what it is",
    "expire calls",
    "find ordering keys without a head",
    "free calls that wait for a key",
    "give claims back",
    "keep the database's identity",
    "look around",
    "look at arrived ordered calls",
    "look for jobs",
    "look for lost commits",
    "notify",
    "prune actions",
    "prune attempts",
    "prune batches",
    "prune bodies",
    "prune calls",
    "prune jobs",
    "prune results",
    "publish the leaves",
    "read the database's identity",
    "read the instances",
    "read the schema's version",
    "register the instance",
    "renew the lease",
    "see whether claiming works",
    "take up untracked calls",
];

/// The steps that a sidecar has told since it started.
fn told(sidecar: &Sidecar) -> BTreeSet<String> {
    let log = sidecar.log();
    let steps = log
        .iter()
        .filter(|line| line["target"] == "leafhopper::step");
    steps
        .map(|line| line["message"].as_str().unwrap().to_owned())
        .collect()
}

/// Every step of a call's or a batch's way is one at which a test of `crashes` kills the process.
#[tokio::test]
async fn no_step_is_missing() {
    let mut passed = BTreeSet::new();
    for nature in [Asked, Keyed, Parking] {
        passed.extend(passed_after_a_crash(nature).await);
    }
    passed.extend(batches::passed(told).await);
    let answered = ANSWERED.iter().map(|(step, _)| step);
    let others = [LOST, SETTLED, PROBED, RESENT, TAKEN_OVER]
        .into_iter()
        .flatten();
    let listed: BTreeSet<String> = answered
        .chain(others)
        .chain(batches::STEPS.into_iter().flatten())
        .map(|step| (*step).to_owned())
        .collect();

    let untried: Vec<_> = named_in_the_source()
        .into_iter()
        .filter(|step| !listed.contains(step) && !journal::STEPS.contains(&step.as_str()))
        .collect();
    assert!(
        untried.is_empty(),
        "named in the source, and nobody dies there: {untried:#?}"
    );
    let is_other = |step: &&String| {
        let place = step.rsplit_once(": ").map_or("", |(place, _)| place);
        OTHER_LOOPS.contains(&place)
    };
    let missing: Vec<_> = passed
        .difference(&listed)
        .filter(|step| !is_other(step))
        .collect();
    assert!(missing.is_empty(), "not in the lists: {missing:#?}");
    let never: Vec<_> = listed.difference(&passed).collect();
    assert!(never.is_empty(), "never passed: {never:#?}");
}

/// The steps that a sidecar passes that takes over a call, and then has another one whose answer is lost.
async fn passed_after_a_crash(nature: Nature) -> BTreeSet<String> {
    let life = Life::new(nature, true).await;
    life.crash_at("request: answered").await;
    let tracing = life
        .config
        .sidecar()
        .environment("LEAFHOPPER_LOG_LEVEL", "leafhopper::step=trace,info");
    let sidecar = tracing.start().await;
    until_all_have_ended(&life).await;
    life.loses_an_answer();
    life.bed.app.insert(named(nature, "other")).await;
    until_all_have_ended(&life).await;
    told(&sidecar)
}

async fn until_all_have_ended(life: &Life) {
    until_within(PATIENCE, "all calls are final or parked", async || {
        let live = "SELECT state FROM leafhopper.dispatch WHERE state <> 'parked'";
        let live = life.bed.app.rows(live).await;
        if live.is_empty() { Ok(()) } else { Err(live) }
    })
    .await;
}

/// The steps that the source names in so many words: those of `leaf` and `engine`.
fn named_in_the_source() -> Vec<String> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut steps = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            steps.extend(text.split("reached(\"").skip(1).map(|call| {
                let mut words = call.split('"');
                let (place, stage) = (words.next().unwrap(), words.nth(1).unwrap());
                format!("{place}: {stage}")
            }));
        }
    }
    assert!(!steps.is_empty(), "the source names its steps otherwise");
    steps
}
