//! The process is frozen at a step for longer than its lease, others go on with what it had in hand, and then it
//! wakes up: it overwrites nothing, sends nothing late, and holds up nobody meanwhile.

use rustix::process::Signal;

use super::{Life, Nature, PATIENCE};
use crate::harness::{
    sidecar::{Config, Sidecar},
    wait::until_within,
};

use Nature::{Asked, Keyed, Parking};

/// Where it has a claim, or will have, and has sent nothing.
const UNSENT: [&str; 4] = [
    "claim calls: before",
    "claim calls: done",
    "attempt: before",
    "request: before",
];

/// Where it has an answer, or has read what it is about to decide.
const ANSWERED: [&str; 3] = [
    "request: answered",
    "attempt: decided",
    "record confirmations: before",
];

/// The same after a lost answer, with a leaf that can be asked.
const LOOKED: [&str; 5] = [
    "look at calls in doubt: done",
    "settle calls in doubt: before",
    "read a call to ask about: done",
    "probe: judged",
    "record a probe: before",
];

/// One that has frozen itself there.
pub(super) async fn frozen(config: &Config, step: &str) -> Sidecar {
    let starter = config.sidecar();
    let sidecar = starter.environment("LEAFHOPPER_FREEZE_AT", step).launch();
    until_within(PATIENCE, &format!("it is frozen, {step}"), async || {
        if sidecar.is_stopped() {
            Ok(())
        } else {
            Err(sidecar.log())
        }
    })
    .await;
    sidecar
}

/// Another one finishes, and the frozen one wakes up; this becomes of the call then.
async fn story(nature: Nature, step: &str, expected: &str) {
    let life = Life::new(nature, false).await;
    if LOOKED.contains(&step) {
        life.loses_an_answer();
    }
    let frozen = frozen(&life.config, step).await;
    let (other, before) = life.finish().await;
    frozen.signal(Signal::CONT);
    frozen.until_ready().await;
    // It is alone and at work again: what it had before the next call is recorded by now, or in a moment.
    drop(other);
    let next = life.bed.app.insert(super::named(nature, "next")).await;
    life.bed.app.until_state(next, "confirmed").await;
    let what = format!("{nature:?}, {step}: {expected}");
    let after = until_within(PATIENCE, &what, async || {
        let call = life.bed.app.call(life.id).await;
        let told = life.told(&call).await;
        if told == expected {
            Ok(call)
        } else {
            Err(told)
        }
    })
    .await;
    if before["state"] != "parked" {
        assert_eq!(after, before, "{nature:?}, {step}");
    }
    drop(frozen);
    // One request has one answer, however late it is heard of.
    let history = life.bed.app.attempts(life.id).await;
    let again = history
        .iter()
        .any(|attempt| attempt["class"] == "confirmed_again");
    assert!(!again, "{nature:?}, {step}: {history:#?}");
}

async fn all_are(nature: Nature, steps: &[&str], expected: &str) {
    for step in steps {
        story(nature, step, expected).await;
    }
}

#[tokio::test]
async fn what_it_had_not_sent_is_sent_once_by_another() {
    let expected = "confirmed by response, sent 1, effects 1";
    all_are(Asked, &UNSENT, expected).await;
    all_are(Keyed, &UNSENT, expected).await;
}

#[tokio::test]
async fn an_answer_that_it_still_has_changes_nothing_that_was_found_out() {
    let expected = "confirmed by adopted, sent 1, effects 1";
    all_are(Asked, &ANSWERED, expected).await;
}

#[tokio::test]
async fn an_answer_that_it_still_has_ends_what_nobody_could_find_out() {
    let expected = "confirmed by response, sent 1, effects 1";
    all_are(Parking, &ANSWERED, expected).await;
}

#[tokio::test]
async fn what_it_had_read_before_decides_nothing_any_more() {
    let expected = "confirmed by adopted, sent 1, effects 1";
    all_are(Asked, &LOOKED, expected).await;
}
