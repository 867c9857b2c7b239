//! A real run of two sidecars with everything wrong at once, scraped by a real Prometheus: what each panel and each
//! alert has to show of it, and what becomes of the alerts when it is mended.

use super::{
    RULES, dashboard, mends,
    prometheus::{program, promtool},
    run::{LIMIT, Run},
};
use crate::{
    harness::{leaf::Gate, wait::until_within},
    runbook,
};

/// What fires while all is wrong: alert, severity, leaf, reason.
const ALL_WRONG: &[[&str; 4]] = &[
    ["LeafhopperBatchesStuck", "warning", "", "unsealed"],
    ["LeafhopperBreakerOpen", "critical", "token", ""],
    ["LeafhopperCallsFailing", "critical", "sour", ""],
    ["LeafhopperCallsInDoubt", "warning", "vague", ""],
    ["LeafhopperCallsNotSent", "critical", "full", ""],
    ["LeafhopperCallsParked", "warning", "silent", ""],
    ["LeafhopperCallsStuck", "warning", "full", "due"],
    [
        "LeafhopperCallsStuck",
        "warning",
        "ordered",
        "waits_for_order",
    ],
    ["LeafhopperConfigReloadRefused", "warning", "", ""],
    ["LeafhopperConfirmedTwice", "critical", "late", ""],
    ["LeafhopperLeafPaused", "warning", "idle", ""],
    ["LeafhopperLeafUnknown", "warning", "", ""],
    ["LeafhopperTeardownIncomplete", "warning", "", ""],
];

#[tokio::test]
async fn a_real_run_raises_what_is_wrong_and_what_the_alert_says_mends_it() {
    let (Some(program), Some(tool)) = (program("prometheus"), program("promtool")) else {
        return;
    };
    let run = Run::start(&program).await;
    run.until_well().await;
    let gates = run.everything_goes_wrong().await;
    run.until_firing("all is wrong", ALL_WRONG).await;
    run.annotations_are_whole().await;
    run.rules_are_evaluated().await;
    run.metrics_are_well_named(&tool).await;
    run.panels_show_it().await;

    mends::parked_call(&run).await;
    mends::long_doubt(&run).await;
    mends::unknown_leaf(&run).await;
    mends::bad_token(&run).await;
    mends::incomplete_teardown(&run).await;
    gates.iter().for_each(Gate::open);
    run.until_gone(mends::MENDED).await;
    run.sidecars_go().await;
}

impl Run {
    /// Nothing of a template is left, and what is to be typed is a command.
    async fn annotations_are_whole(&self) {
        for alert in self.prometheus.alerts().await.unwrap() {
            for (name, text) in &alert.annotations {
                let flaw = ["{{", "}}", "<no value>", "error", "%!"]
                    .iter()
                    .find(|flaw| text.contains(**flaw));
                assert_eq!(flaw, None, "{name}: {text}");
                for command in runbook::commands_in(text) {
                    runbook::parse(&command).unwrap();
                }
            }
        }
    }

    async fn rules_are_evaluated(&self) {
        let rules = self.prometheus.rules().await.unwrap();
        assert_eq!(rules.len(), RULES.matches("- alert: ").count());
        for rule in rules {
            assert_eq!(rule["health"], "ok", "{rule:#}");
        }
    }

    /// Each query of the dashboard gives something, and what is known exactly is so.
    async fn panels_show_it(&self) {
        let queries = dashboard::queries();
        for query in &queries {
            until_within(LIMIT, &query.panel, async || {
                match self.prometheus.query(&query.expression).await {
                    Ok(series) if !series.is_empty() => Ok(()),
                    other => Err((query.clone(), other)),
                }
            })
            .await;
        }
        for (panel, name, labels, wanted) in SHOWN {
            let query = queries
                .iter()
                .find(|q| q.panel == *panel && q.name == *name);
            let query = query.unwrap_or_else(|| panic!("no query {name} of {panel}"));
            until_within(LIMIT, panel, async || {
                let series = self.prometheus.query(&query.expression).await?;
                let meant = series.iter().filter(|(found, _)| {
                    labels
                        .iter()
                        .all(|(name, value)| found.get(*name).is_some_and(|v| v == value))
                });
                let sum: f64 = meant.map(|(_, value)| value).sum();
                if wanted.holds(sum) {
                    return Ok(());
                }
                Err(format!("{sum}, of {}: {series:#?}", query.expression))
            })
            .await;
        }
    }

    /// Every metric is asked for by a panel or an alert, and its name and help are as Prometheus wants them.
    async fn metrics_are_well_named(&self, tool: &std::path::Path) {
        let (_, text) = self.sidecar.get("/metrics").await;
        let asked: String = dashboard::queries()
            .into_iter()
            .map(|query| query.expression)
            .chain([RULES.to_owned()])
            .collect();
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
        let unasked: Vec<_> = names
            .iter()
            .filter(|name| !asked.contains(**name))
            .collect();
        assert!(
            unasked.is_empty(),
            "no panel and no alert asks for {unasked:?}"
        );
        let words = asked.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("leafhopper_")) {
            let suffixes = ["_bucket", "_count", "_sum"];
            let name = suffixes.iter().find_map(|suffix| word.strip_suffix(suffix));
            assert!(
                names.contains(&name.unwrap_or(word)),
                "there is no metric {word}"
            );
        }
        let output = promtool(tool, self.folder.path(), &["check", "metrics"], &text);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
    }

    /// The second one loses its database, then both die, one after the other.
    async fn sidecars_go(mut self) {
        self.way.cut();
        self.until_one("LeafhopperDatabaseDown", "warning").await;
        self.second.kill();
        self.until_one("LeafhopperInstanceDown", "warning").await;
        self.sidecar.kill();
        self.until_one("LeafhopperNoInstance", "critical").await;
    }
}

/// What a panel's value is to be.
#[derive(Debug)]
enum Wanted {
    Is(f64),
    MoreThan(f64),
}

impl Wanted {
    fn holds(&self, found: f64) -> bool {
        match self {
            Self::Is(value) => (found - value).abs() < 0.001,
            Self::MoreThan(value) => found > *value,
        }
    }
}

/// A panel, its query, the labels of the series that are added up, and the sum.
type Shown = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    Wanted,
);

/// That there are two instances doubles nothing that the tables hold.
const SHOWN: &[Shown] = &[
    ("Instances", "A", &[], Wanted::MoreThan(1.9)),
    ("Database", "A", &[], Wanted::Is(1.0)),
    ("Parked calls", "A", &[], Wanted::Is(1.0)),
    ("Stuck batches", "A", &[], Wanted::Is(2.0)),
    ("Leaves", "A", &[("leaf", "(unknown)")], Wanted::Is(1.0)),
    ("Leaves", "B", &[("leaf", "full")], Wanted::Is(1.0)),
    ("Leaves", "C", &[("leaf", "vague")], Wanted::Is(1.0)),
    ("Leaves", "D", &[("leaf", "silent")], Wanted::Is(1.0)),
    ("Leaves", "G", &[("leaf", "full")], Wanted::MoreThan(1.0)),
    ("Leaves", "H", &[("leaf", "vague")], Wanted::MoreThan(1.0)),
    ("Leaves", "I", &[("leaf", "token")], Wanted::Is(1.0)),
    ("Leaves", "I", &[("leaf", "git")], Wanted::Is(0.0)),
    ("Leaves", "J", &[("leaf", "idle")], Wanted::Is(1.0)),
    (
        "Ended",
        "A",
        &[("leaf", "sour"), ("state", "failed")],
        Wanted::MoreThan(0.0),
    ),
    (
        "Attempts",
        "A",
        &[("leaf", "token"), ("class", "retry")],
        Wanted::MoreThan(0.0),
    ),
    (
        "In flight, and its limit",
        "B",
        &[("leaf", "full")],
        Wanted::Is(1.0),
    ),
    (
        "Stuck, by reason",
        "A",
        &[("leaf", "full"), ("reason", "due")],
        Wanted::Is(1.0),
    ),
    (
        "Stuck, by reason",
        "A",
        &[("leaf", "ordered"), ("reason", "waits_for_order")],
        Wanted::Is(1.0),
    ),
    (
        "Probes, by verdict",
        "A",
        &[("leaf", "git"), ("verdict", "found")],
        Wanted::MoreThan(0.0),
    ),
    (
        "Probes, by verdict",
        "A",
        &[("leaf", "vague"), ("verdict", "unclear")],
        Wanted::MoreThan(0.0),
    ),
    (
        "Duplicates prevented",
        "A",
        &[("leaf", "git"), ("how", "probe")],
        Wanted::MoreThan(0.0),
    ),
    (
        "Duplicates prevented",
        "A",
        &[("leaf", "git"), ("how", "result")],
        Wanted::MoreThan(0.0),
    ),
    (
        "Weak adoptions",
        "A",
        &[("leaf", "plain")],
        Wanted::MoreThan(0.0),
    ),
    (
        "Attempt, 99 %",
        "A",
        &[("leaf", "git")],
        Wanted::MoreThan(0.0),
    ),
    (
        "From due to sent, 99 %",
        "A",
        &[("leaf", "git")],
        Wanted::MoreThan(0.0),
    ),
    (
        "Batches under way, by state",
        "A",
        &[("state", "compensating")],
        Wanted::Is(1.0),
    ),
    (
        "Stuck batches, by reason",
        "A",
        &[("reason", "unsealed")],
        Wanted::Is(1.0),
    ),
    (
        "Calls recorded in one group",
        "A",
        &[],
        Wanted::MoreThan(0.0),
    ),
    ("Reload refused", "A", &[], Wanted::Is(1.0)),
    ("Notifications arrive", "A", &[], Wanted::Is(2.0)),
    ("Memory", "A", &[], Wanted::MoreThan(1e6)),
];
