//! The process is killed at each step between claim and record, and another one finishes: the leaf's ledger and
//! the tables agree, whatever the leaf's nature.
//!
//! The steps are those that the program itself tells (`src/step.rs`): before and after each statement, at each
//! stage of a request, around each write to `state_dir`. `complete.rs` finds steps that are missing from the
//! tables here and in `batches`, where the batch is what has to come to its end.

mod batches;
mod complete;
mod frozen;
mod journal;

use std::{os::unix::process::ExitStatusExt as _, time::Duration};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::harness::{
    Bed,
    app::{Call, keyed},
    folder::Folder,
    leaf::Remembers,
    sidecar::{Config, Sidecar, Starter},
    wait::until_within,
};

use Nature::{Asked, Idempotent, Keyed, Parking};
use Trace::{Begun, Claimed, Executed, Nothing, Recorded};

/// The time limit is one that a stalled machine keeps to: one that ran out would tell another story.
const QUICK: &str =
    "timeout = \"10s\"\nretry = { initial = \"20ms\", max = \"20ms\", jitter = 0.0 }";

/// The signal in a process's status.
const SIGKILLED: Option<i32> = Some(9);

/// Where nothing but its end tells that an instance is gone: short, and longer than a busy machine stalls.
const SHORT_LEASE: &str = "lease = \"2s\"";

/// So many lives are led at once, in all tests together: each takes two processes and more, and waits most of the time.
static LIVES: Semaphore = Semaphore::const_new(10);

/// Time enough for a lease that has to run out on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What can be known of a leaf after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    /// It has a probe.
    Asked,
    /// It honours an idempotency key.
    Keyed,
    /// The request is a PUT.
    Idempotent,
    /// Nothing: a person is asked.
    Parking,
}

/// What a process that died at a step has left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// Nothing.
    Nothing,
    /// The claim.
    Claimed,
    /// The claim, and the note in `state_dir` that it is sent.
    Begun,
    /// That, and the effect at the leaf.
    Executed,
    /// The result.
    Recorded,
}

/// An answer arrives, and the process dies before it is recorded, or just after.
const ANSWERED: &[(&str, Trace)] = &[
    ("claim calls: before", Nothing),
    ("claim calls: done", Claimed),
    ("attempt: before", Claimed),
    ("read the size of a body: before", Claimed),
    ("read the size of a body: done", Claimed),
    ("read a body: before", Claimed),
    ("read a body: done", Claimed),
    ("begun-file: done", Begun),
    ("request: before", Begun),
    ("request: handed over", Begun),
    ("request: answered", Executed),
    ("attempt: decided", Executed),
    ("record confirmations: before", Executed),
    ("record confirmations: done", Recorded),
    ("attempt: done", Recorded),
];

/// The effect is there and the answer is lost; the process dies as it records that.
const LOST: &[&str] = &["record attempts: before", "record attempts: done"];

/// After that, it dies as it turns to the call in doubt.
const SETTLED: &[&str] = &[
    "answer calls in doubt: before",
    "answer calls in doubt: done",
    "look at calls in doubt: before",
    "look at calls in doubt: done",
    "settle calls in doubt: before",
    "settle calls in doubt: done",
];

/// Then, with a leaf that can be asked.
const PROBED: &[&str] = &[
    "read a call to ask about: before",
    "read a call to ask about: done",
    "probe: before",
    "request: before",
    "request: handed over",
    "request: answered",
    "probe: judged",
    "record a probe: before",
    "record a probe: done",
    "probe: done",
];

/// The answer to a request that was sent again is not recorded just like that.
const RESENT: &[&str] = &[
    "record confirmations once more: before",
    "record confirmations once more: done",
];

/// A process takes over what another has left in the middle of a request, and dies of it, too.
const TAKEN_OVER: &[&str] = &[
    "reclaim calls of vanished instances: before",
    "reclaim calls of vanished instances: done",
    "remove a dead instance: before",
    "remove a dead instance: done",
    "settle calls in doubt: before",
    "settle calls in doubt: done",
];

/// One call, its leaf, and the sidecars that follow each other.
struct Life {
    nature: Nature,
    config: Config,
    bed: Bed,
    id: i64,
    /// The folder that is its `state_dir`.
    state: Option<Folder>,
}

impl Life {
    /// With a `state_dir`, a lease that nobody waits for; without, a short one.
    async fn new(nature: Nature, state: bool) -> Self {
        let bed = Bed::new().await;
        let lines = match nature {
            Asked => "in_doubt = \"probe\"",
            Keyed => {
                bed.leaf.honours("Idempotency-Key", Remembers::Successes);
                "idempotency = { header = \"Idempotency-Key\", window = \"1h\" }"
            }
            Idempotent => "",
            Parking => "in_doubt = \"park\"",
        };
        let mut config = bed.config(&format!("{QUICK}\n{lines}"));
        if nature == Asked {
            config = config.probe("leaf", "settle = \"100ms\"");
        }
        let state = state.then(Folder::new);
        let config = match &state {
            Some(folder) => config.dispatch(&format!(
                "lease = \"60s\"\nstate_dir = \"{}\"",
                folder.path().display()
            )),
            None => config.dispatch(SHORT_LEASE),
        };
        let id = bed.app.insert(named(nature, "k")).await;
        Self {
            nature,
            config,
            bed,
            id,
            state,
        }
    }

    /// A sidecar kills itself at that step; its exit status shows that it did.
    async fn crash_at(&self, step: &str) {
        let status = crashing_at(&self.config, step)
            .launch()
            .exit_within(PATIENCE)
            .await;
        assert_eq!(
            status.signal(),
            SIGKILLED,
            "{:?}, {step}: {status}",
            self.nature
        );
    }

    /// The effect is there, the answer isn't: the next request is executed and reset.
    fn loses_an_answer(&self) {
        self.bed.leaf.on("/things").times(1).resets();
    }

    /// Another sidecar finishes. Gives it, and the call as it ends.
    async fn finish(&self) -> (Sidecar, Value) {
        let sidecar = self.config.start().await;
        let what = format!("the call ends, {:?}", self.nature);
        let call = until_within(PATIENCE, &what, async || {
            let call = self.bed.app.call(self.id).await;
            match call["state"].as_str() {
                Some("confirmed" | "parked" | "failed") => Ok(call),
                _ => Err(call),
            }
        })
        .await;
        (sidecar, call)
    }

    /// What the ledger and the tables say, in one line.
    async fn story(&self) -> String {
        let (sidecar, call) = self.finish().await;
        let story = self.told(&call).await;
        drop(sidecar);
        story
    }

    /// What they say of the call as it is shown.
    async fn told(&self, call: &Value) -> String {
        let results = self.bed.app.results("leaf", "k").await;
        let source = results.first().map_or("nobody", |row| {
            row["source"].as_str().unwrap_or("without source")
        });
        let sent = self.bed.leaf.requests("k");
        let sent = sent.iter().filter(|request| request.method != "GET");
        format!(
            "{} by {source}, sent {}, effects {}",
            call["state"].as_str().unwrap(),
            sent.count(),
            self.bed.leaf.effects("k"),
        )
    }

    /// What must come of a call whose process died and left that.
    fn expected(&self, left: Trace) -> &'static str {
        // Where sends are noted in `state_dir`, a claim without a note is known not to have been sent.
        let unsent = left == Nothing || left == Claimed && self.state.is_some();
        match (self.nature, left) {
            _ if unsent => "confirmed by response, sent 1, effects 1",
            (_, Recorded) => "confirmed by response, sent 1, effects 1",
            (Parking, Claimed | Begun) => "parked by nobody, sent 0, effects 0",
            (Parking, Executed) => "parked by nobody, sent 1, effects 1",
            (Asked, Executed) => "confirmed by adopted, sent 1, effects 1",
            (_, Claimed | Begun | Nothing) => "confirmed by response, sent 1, effects 1",
            (Keyed, Executed) => "confirmed by response, sent 2, effects 1",
            // It is the same effect twice: the ledger counts requests that were executed.
            (Idempotent, Executed) => "confirmed by response, sent 2, effects 2",
        }
    }
}

/// Starts a sidecar that kills itself at that step.
fn crashing_at(config: &Config, step: &str) -> Starter {
    config.sidecar().environment("LEAFHOPPER_CRASH_AT", step)
}

fn named(nature: Nature, key: &str) -> Call {
    let call = keyed("leaf", key);
    match nature {
        Idempotent => call.method("PUT"),
        // Its body is so large that it is read by itself.
        Asked => {
            let words = std::iter::repeat_with(|| Uuid::new_v4().to_string());
            let filler: String = words.take(1000).collect();
            call.body(json!({ "key": key, "filler": filler }))
        }
        Keyed | Parking => call,
    }
}

/// The steps of [`ANSWERED`] that a call to such a leaf passes.
fn answered(nature: Nature) -> impl Iterator<Item = &'static (&'static str, Trace)> {
    let of_large = |step: &str| step.contains(" body: ");
    ANSWERED
        .iter()
        .filter(move |(step, _)| nature == Asked || !of_large(step))
}

/// Kills a process at each step of a call that is answered, and lets the next one finish.
async fn at_each_step_of_an_answered_call(nature: Nature) {
    let mut wrong = Vec::new();
    for state in [true, false] {
        let steps = answered(nature).filter(|(step, _)| state || !step.starts_with("begun-file"));
        let stories = steps.map(async |(step, left)| {
            let life = Life::new(nature, state).await;
            life.crash_at(step).await;
            let (story, expected) = (life.story().await, life.expected(*left));
            let wrong = (story != expected)
                .then(|| format!("{step} (state_dir {state}):\n  {story}, and not\n  {expected}"));
            (life, wrong)
        });
        wrong.extend(wrong_of(stories).await);
    }
    assert!(wrong.is_empty(), "{nature:?}\n{}", wrong.join("\n"));
}

/// Kills a process at each of these paths, after an answer was lost, and lets the next one finish.
async fn after_a_lost_answer(nature: Nature, paths: impl IntoIterator<Item = String>) {
    let stories = paths.into_iter().map(async |path| {
        let life = Life::new(nature, true).await;
        life.loses_an_answer();
        life.crash_at(&path).await;
        let story = life.story().await;
        let expected = match (nature, path.rsplit(" > ").next()) {
            // The second request had its answer, and nobody wrote it down.
            (
                Keyed,
                Some(
                    "request: answered"
                    | "attempt: decided"
                    | "record confirmations: before"
                    | "record confirmations: done"
                    | "record confirmations once more: before",
                ),
            ) => "confirmed by response, sent 3, effects 1",
            _ => life.expected(Executed),
        };
        // While one loop dies after the doubt was written down, another may have sent the request again already.
        let sooner = expected
            .replace("sent 3", "sent 4")
            .replace("sent 2", "sent 3");
        let may_be = nature == Keyed && path != "record attempts: before";
        let right = story == expected || may_be && story == sooner;
        let wrong = (!right).then(|| format!("{path}:\n  {story}, and not\n  {expected}"));
        (life, wrong)
    });
    let wrong = wrong_of(stories).await;
    assert!(wrong.is_empty(), "{nature:?}\n{}", wrong.join("\n"));
}

/// What went wrong in these lives. Their databases go after all of them: to drop one blocks this thread, on which others
/// are connecting.
async fn wrong_of<L>(
    lives: impl Iterator<Item = impl Future<Output = (L, Option<String>)>>,
) -> Vec<String> {
    use futures_util::StreamExt as _;

    let lives = lives.map(async |life| {
        let _place = LIVES.acquire().await;
        life.await
    });
    let led = futures_util::stream::iter(lives).buffer_unordered(4);
    let (_lives, wrong): (Vec<_>, Vec<_>) = led.unzip().await;
    wrong.into_iter().flatten().collect()
}

/// Paths that lead to each of these steps, once that one is behind: one where something begins, since what follows from it can
/// begin before its end is heard of.
fn then(before: &str, steps: &[&str]) -> Vec<String> {
    steps
        .iter()
        .map(|step| format!("{before} > {step}"))
        .collect()
}

#[tokio::test]
async fn a_leaf_that_can_be_asked_has_each_effect_once() {
    at_each_step_of_an_answered_call(Asked).await;
}

#[tokio::test]
async fn a_leaf_that_honours_keys_has_each_effect_once() {
    at_each_step_of_an_answered_call(Keyed).await;
}

#[tokio::test]
async fn a_put_is_sent_again_and_confirmed() {
    at_each_step_of_an_answered_call(Idempotent).await;
}

#[tokio::test]
async fn at_a_leaf_that_tells_nothing_only_proof_sends_again() {
    at_each_step_of_an_answered_call(Parking).await;
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_whoever_dies_meanwhile() {
    let lost = LOST.iter().map(|step| (*step).to_owned());
    let settled = then("record attempts: before", SETTLED);
    let probed = then("settle calls in doubt: before", PROBED);
    after_a_lost_answer(Asked, lost.chain(settled).chain(probed)).await;
}

#[tokio::test]
async fn a_lost_answer_is_got_with_the_same_key_whoever_dies_meanwhile() {
    let lost = LOST.iter().map(|step| (*step).to_owned());
    let sent_again: Vec<_> = answered(Keyed).map(|(step, _)| *step).collect();
    let sent_again = then("record attempts: before", &sent_again);
    let resent = then("record attempts: before", RESENT);
    after_a_lost_answer(Keyed, lost.chain(sent_again).chain(resent)).await;
}

#[tokio::test]
async fn a_lost_answer_is_parked_whoever_dies_meanwhile() {
    after_a_lost_answer(Parking, LOST.iter().map(|step| (*step).to_owned())).await;
}

#[tokio::test]
async fn one_that_takes_over_may_die_of_it_too() {
    for nature in [Asked, Keyed, Parking] {
        let stories = TAKEN_OVER.iter().map(async |step| {
            let life = Life::new(nature, true).await;
            life.crash_at("request: answered").await;
            life.crash_at(step).await;
            let (story, expected) = (life.story().await, life.expected(Executed));
            let wrong =
                (story != expected).then(|| format!("{step}:\n  {story}, and not\n  {expected}"));
            (life, wrong)
        });
        let wrong = wrong_of(stories).await;
        assert!(wrong.is_empty(), "{nature:?}\n{}", wrong.join("\n"));
    }
}
