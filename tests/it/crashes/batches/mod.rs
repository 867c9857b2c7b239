//! The process is killed at each step that takes a batch to its end, and another one goes on: what was confirmed of a
//! failed batch is undone once, each follow-up is sent once, and of a batch that succeeded nothing is undone.
//!
//! A step is tried where it does something: a path to it leads over the failure that cancels the batch and the
//! confirmations behind it, which come one after the other.

mod frozen;

use std::os::unix::process::ExitStatusExt as _;

use serde_json::json;
use uuid::Uuid;

use super::{PATIENCE, QUICK, SHORT_LEASE, SIGKILLED, crashing_at, wrong_of};
use crate::harness::{
    Bed,
    app::{Call, keyed},
    folder::Folder,
    leaf::Gate,
    sidecar::{Config, Sidecar},
    wait::until_within,
};

use End::{Fails, Succeeds};

const COMPENSATE: &str = "concurrency = 8\n\
     compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";

/// From a batch's mark to its look.
const FOUND: &[&str] = &[
    "read marks of batches: before",
    "read marks of batches: done",
    "walk through batches: before",
    "walk through batches: done",
];

const LOOKED: &[&str] = &[
    "look at batches: before",
    "look at batches: open",
    "look at batches: done",
];

const SWEPT: &[&str] = &[
    "cancel calls of cancelled batches: before",
    "cancel calls of cancelled batches: done",
];

const TORN_DOWN: &[&str] = &[
    "tear batches down: before",
    "tear batches down: open",
    "tear batches down: next",
    "tear batches down: done",
];

const LET_GO: &[&str] = &["let follow-ups go: before", "let follow-ups go: done"];

/// A compensation's own attempt.
const UNDOING: &[&str] = &[
    "claim calls: before",
    "claim calls: done",
    "attempt: before",
    "begun-file: done",
    "request: before",
    "request: handed over",
    "request: answered",
    "attempt: decided",
    "record confirmations: before",
    "record confirmations: done",
    "attempt: done",
];

/// Each of these a process passes that takes one batch to a teardown and another one to success.
pub(super) const STEPS: [&[&str]; 5] = [FOUND, LOOKED, SWEPT, TORN_DOWN, LET_GO];

/// After so many confirmations behind the failure, and a further step: each of these.
type Path = (usize, &'static str, &'static [&'static str]);

/// The first of these confirmations is the call's that was in flight, two are compensations', two follow-ups'.
const OF_A_FAILURE: &[Path] = &[
    (0, "", FOUND),
    (0, "", LOOKED),
    (0, "", SWEPT),
    (1, "", LOOKED),
    (1, "", TORN_DOWN),
    (1, "tear batches down: done", UNDOING),
    (2, "", LOOKED),
    (2, "", TORN_DOWN),
    (2, "tear batches down: next", &["tear batches down: next"]),
    (
        2,
        "tear batches down: done",
        &[
            "request: answered",
            "tear batches down: before",
            "tear batches down: open",
        ],
    ),
    // One that had begun before the last confirmation may have seen it.
    (
        3,
        "",
        &["tear batches down: next", "tear batches down: done"],
    ),
    (3, "tear batches down: done", LOOKED),
    (3, "", LET_GO),
    (4, "", LOOKED),
    (4, "", LET_GO),
    (5, "", LOOKED),
];

/// The first is the only call's, the others are follow-ups'.
const OF_A_SUCCESS: &[Path] = &[
    (1, "", FOUND),
    (1, "", LOOKED),
    (1, "look at batches: done", LOOKED),
    (1, "", LET_GO),
    (1, "look at batches: done > look at batches: done", SWEPT),
    (2, "", LOOKED),
    (2, "", LET_GO),
    (3, "", LOOKED),
];

/// Where nothing but the lease tells another instance that the first one is gone.
const WITHOUT_A_FOLDER: &[Path] = &[
    (0, "", LOOKED),
    (0, "", SWEPT),
    (1, "", TORN_DOWN),
    (
        1,
        "tear batches down: done",
        &["claim calls: done", "request: answered"],
    ),
    (3, "", LET_GO),
];

/// How a batch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Fails,
    Succeeds,
}

impl End {
    /// What must come of each of its calls: its state, how often it was executed, and how often that was undone; and
    /// in which order.
    fn expected(self) -> &'static str {
        match self {
            Fails => {
                "cancelled: failed dns 0/0, confirmed repository 1/1, confirmed repository:undo:1 0/0, \
                 confirmed settled 1/0, confirmed site 1/1, confirmed site:undo:1 0/0, cancelled then 0/0, \
                 confirmed told 1/0, cancelled waits 0/0; undone site, repository"
            }
            Succeeds => {
                "succeeded: confirmed repository 1/0, confirmed settled 1/0, confirmed then 1/0, cancelled told 0/0; \
                 undone "
            }
        }
    }

    fn paths(self, paths: &[Path]) -> Vec<String> {
        // Where it begins: what follows from it can begin before its end is heard of.
        let confirmed = "record confirmations: before";
        let mut all = Vec::new();
        for (confirmations, further, steps) in paths {
            let mut before = Vec::new();
            if self == Fails {
                before.push("record attempts: before");
            }
            before.extend(std::iter::repeat_n(confirmed, *confirmations));
            if !further.is_empty() {
                before.push(further);
            }
            all.extend(super::then(&before.join(" > "), steps));
        }
        all
    }
}

/// One batch, its leaf, and the sidecars that follow each other.
pub(super) struct BatchLife {
    end: End,
    config: Config,
    bed: Bed,
    batch: Uuid,
    /// The answer of the call that is in flight while another fails.
    site: Gate,
    /// The failure.
    dns: Gate,
    /// The answers of follow-ups.
    follow_ups: Gate,
    _state: Option<Folder>,
}

impl BatchLife {
    /// With a `state_dir`, a lease that nobody waits for; without, a short one.
    async fn new(end: End, state: bool) -> Self {
        let bed = Bed::new().await;
        let config = bed
            .config(&format!("{QUICK}\n{COMPENSATE}"))
            .probe("leaf", "settle = \"100ms\"");
        let state = state.then(Folder::new);
        let config = match &state {
            Some(folder) => config.dispatch(&format!(
                "lease = \"60s\"\nstate_dir = \"{}\"",
                folder.path().display()
            )),
            None => config.dispatch(SHORT_LEASE),
        };
        let life = Self {
            end,
            config,
            bed,
            batch: Uuid::new_v4(),
            site: Gate::closed(),
            dns: Gate::closed(),
            follow_ups: Gate::closed(),
            _state: state,
        };
        life.insert().await;
        life
    }

    async fn insert(&self) {
        let app = &self.bed.app;
        let phases = [
            ("then", "batch_succeeded"),
            ("told", "batch_failed"),
            ("settled", "batch_settled"),
        ];
        app.execute("BEGIN").await;
        for (key, run_when) in phases {
            app.insert(self.call(key).set("run_when", run_when)).await;
        }
        app.insert(self.call("repository")).await;
        if self.end == Fails {
            let leaf = &self.bed.leaf;
            let site = leaf.always().key("site").method("POST");
            site.waits_before_the_answer(&self.site).answers(201);
            let dns = leaf.always().key("dns").method("POST");
            dns.waits_before_the_effect(&self.dns).refuses(422);
            app.insert(self.call("site")).await;
            app.insert(self.call("dns")).await;
            // Nobody takes it: it waits until it is cancelled.
            app.insert(self.call("waits").set("leaf", "nobody")).await;
        }
        app.execute("COMMIT").await;
    }

    fn call(&self, key: &str) -> Call {
        keyed("leaf", key).batch(self.batch)
    }

    /// The leaf's part: one call fails after another is confirmed and while the third is in flight.
    async fn unfolds(&self) {
        if self.end == Succeeds {
            return;
        }
        let state_of = async |key: &str| {
            let sql = format!("SELECT state FROM leafhopper.call WHERE key = '{key}'");
            self.bed.app.rows(&sql).await.remove(0)["state"].clone()
        };
        until_within(PATIENCE, "one is confirmed, one in flight", async || {
            let repository = state_of("repository").await;
            if repository == "confirmed" && self.bed.leaf.effects("site") > 0 {
                Ok(())
            } else {
                Err((repository, self.bed.leaf.all_requests()))
            }
        })
        .await;
        self.dns.open();
        until_within(PATIENCE, "one has failed", async || {
            let dns = state_of("dns").await;
            if dns == "failed" { Ok(()) } else { Err(dns) }
        })
        .await;
        self.site.open();
    }

    /// No follow-up ends before all have died: a process can always let them go.
    fn holds_follow_ups(&self) {
        for key in ["then", "told", "settled"] {
            let leaf = &self.bed.leaf;
            let follow_up = leaf.always().key(key).method("POST");
            follow_up
                .waits_before_the_answer(&self.follow_ups)
                .answers(201);
        }
    }

    /// A sidecar kills itself at each of these steps, another one finishes; gives what the ledger and the tables say.
    async fn story(&self, crashes: &[String]) -> String {
        let sidecars = async {
            for step in crashes {
                let status = crashing_at(&self.config, step)
                    .launch()
                    .exit_within(PATIENCE)
                    .await;
                assert_eq!(status.signal(), SIGKILLED, "{step}: {status}");
            }
            self.follow_ups.open();
            let sidecar = self.config.start().await;
            self.until_finished().await;
            sidecar
        };
        let (sidecar, ()) = tokio::join!(sidecars, self.unfolds());
        let told = self.told().await;
        drop(sidecar);
        told
    }

    async fn until_finished(&self) {
        until_within(PATIENCE, "the batch is finished", async || {
            let batch = self.batch;
            let sql = format!(
                "SELECT * FROM leafhopper.batch WHERE id = '{batch}' AND finished_at IS NOT NULL"
            );
            if self.bed.app.rows(&sql).await.is_empty() {
                Err(self.told().await)
            } else {
                Ok(())
            }
        })
        .await;
    }

    async fn told(&self) -> String {
        let app = &self.bed.app;
        let batch = self.batch;
        let sql = format!("SELECT state FROM leafhopper.batch WHERE id = '{batch}'");
        let row = app.rows(&sql).await;
        let state = row
            .first()
            .map_or(json!("open"), |row| row["state"].clone());
        let sql = format!(
            "SELECT key, state FROM leafhopper.call WHERE batch_id = '{batch}' ORDER BY key COLLATE \"C\""
        );
        let rows = app.rows(&sql).await;
        let calls = rows.iter().map(|row| {
            let key = row["key"].as_str().unwrap();
            let state = row["state"].as_str().unwrap();
            let requests = self.bed.leaf.requests(key);
            let executed = |method| {
                let made = requests.iter().filter(|request| request.executed);
                made.filter(|request| request.method == method).count()
            };
            format!("{state} {key} {}/{}", executed("POST"), executed("DELETE"))
        });
        let calls: Vec<_> = calls.collect();
        let requests = self.bed.leaf.all_requests().into_iter();
        let undone: Vec<_> = requests
            .filter(|request| request.method == "DELETE" && request.executed)
            .map(|request| request.key)
            .collect();
        format!(
            "{}: {}; undone {}",
            state.as_str().unwrap(),
            calls.join(", "),
            undone.join(", ")
        )
    }
}

/// Kills a process at each of these paths, `deaths` processes at its last step, and lets the next one finish.
async fn at_each(end: End, state: bool, paths: &[Path], deaths: usize) {
    let stories = end.paths(paths).into_iter().map(async |path| {
        let life = BatchLife::new(end, state).await;
        let step = path.rsplit(" > ").next().unwrap().to_owned();
        let mut crashes = vec![path.clone()];
        if deaths > 1 && LET_GO.contains(&step.as_str()) {
            life.holds_follow_ups();
        }
        crashes.extend(std::iter::repeat_n(step, deaths - 1));
        let (story, expected) = (life.story(&crashes).await, end.expected());
        let wrong = (story != expected)
            .then(|| format!("{path} (state_dir {state}):\n  {story}, and not\n  {expected}"));
        (life, wrong)
    });
    let wrong = wrong_of(stories).await;
    assert!(wrong.is_empty(), "{end:?}\n{}", wrong.join("\n"));
}

/// The steps of processes that take a batch to its teardown and another one to success.
pub(super) async fn passed(
    told: impl Fn(&Sidecar) -> std::collections::BTreeSet<String>,
) -> std::collections::BTreeSet<String> {
    let mut passed = std::collections::BTreeSet::new();
    for end in [Fails, Succeeds] {
        let life = BatchLife::new(end, true).await;
        let starter = life.config.sidecar();
        let tracing = starter.environment("LEAFHOPPER_LOG_LEVEL", "leafhopper::step=trace,info");
        let sidecar = tracing.start().await;
        tokio::join!(life.unfolds(), life.until_finished());
        passed.extend(told(&sidecar));
    }
    passed
}

/// Each step of these lists is the end of a path.
#[test]
fn each_step_of_a_batch_s_way_is_tried() {
    let paths = [Fails.paths(OF_A_FAILURE), Succeeds.paths(OF_A_SUCCESS)].concat();
    for step in STEPS.into_iter().flatten() {
        let ends_here = |path: &String| path.rsplit(" > ").next() == Some(step);
        assert!(paths.iter().any(ends_here), "nobody dies at: {step}");
    }
}

#[tokio::test]
async fn a_failed_batch_is_undone_once_and_said_once_whoever_dies_meanwhile() {
    at_each(Fails, true, OF_A_FAILURE, 1).await;
}

#[tokio::test]
async fn a_batch_that_succeeds_is_said_once_and_stands_whoever_dies_meanwhile() {
    at_each(Succeeds, true, OF_A_SUCCESS, 1).await;
}

#[tokio::test]
async fn another_instance_goes_on_with_what_one_has_left() {
    at_each(Fails, false, WITHOUT_A_FOLDER, 1).await;
}

#[tokio::test]
async fn the_next_may_die_at_the_same_step() {
    let batch_steps = [(0, "", LOOKED), (1, "", TORN_DOWN), (3, "", LET_GO)];
    at_each(Fails, true, &batch_steps, 3).await;
    at_each(Succeeds, true, &[(1, "", LOOKED), (1, "", LET_GO)], 3).await;
}
