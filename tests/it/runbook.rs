//! The runbook is complete: a section for each alert and each reason, and what it tells to type can be typed.

use std::{collections::BTreeSet, path::Path};

use clap::Parser as _;
use leafhopper::{
    cli::Cli,
    metrics::Metrics,
    store::operator::{FAILED_REASONS, PARKED_REASONS, PENDING_REASONS, STATES},
};

use crate::{alerts, harness::Bed};

const RUNBOOK: &str = include_str!("../../docs/runbook.md");
const RULES: &str = include_str!("../../deploy/prometheus/leafhopper.rules.yml");
const DASHBOARD: &str = include_str!("../../deploy/grafana/leafhopper.json");
const README: &str = include_str!("../../README.md");

/// What stands for a value that the reader knows, and one that fits there.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("ID", "4711"),
    ("HEAD", "4710"),
    ("BATCH", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("LEAF", "git"),
];

#[test]
fn each_alert_has_a_section_and_leads_to_it() {
    let anchors = anchors(RUNBOOK);
    for name in alerts::names() {
        assert!(anchors.contains(&name.to_lowercase()), "no section {name}");
    }
    let mut alert = "";
    for line in RULES.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alert = name;
        }
        if let Some(url) = line.strip_prefix("runbook_url: ") {
            let wanted = format!("docs/runbook.md#{}", alert.to_lowercase());
            assert_eq!(url, wanted, "{alert}");
        }
    }
    let (alerts, urls) = (
        RULES.matches("- alert: "),
        RULES.matches("runbook_url: docs/"),
    );
    assert_eq!(alerts.count(), urls.count());
    let named = DASHBOARD.split("(runbook: ").skip(1);
    for name in named.map(|rest| rest.split(')').next().unwrap().to_lowercase()) {
        assert!(anchors.contains(&name), "the dashboard names {name}");
    }
}

#[test]
fn each_state_and_each_reason_has_a_section() {
    let anchors = anchors(RUNBOOK);
    let of = |state: &'static str, reasons: &[&str]| -> Vec<String> {
        reasons
            .iter()
            .map(|reason| format!("{state}-{reason}"))
            .collect()
    };
    let mut wanted: Vec<String> = STATES.iter().map(|state| (*state).to_owned()).collect();
    wanted.extend(of("pending", PENDING_REASONS));
    wanted.extend(of("parked", PARKED_REASONS));
    wanted.extend(of("failed", FAILED_REASONS));
    // What `show` has words for, the reasons that only the view gives among them.
    let told = told();
    assert!(told.contains("pending-untracked") && told.contains("cancelled-batch_finished"));
    wanted.extend(told);
    wanted.retain(|section| !anchors.contains(section));
    assert!(wanted.is_empty(), "the runbook lacks {wanted:?}");
}

#[test]
fn each_reason_of_the_metrics_has_a_section_and_an_alert() {
    let anchors = anchors(RUNBOOK);
    for metric in ["leafhopper_stuck_calls", "leafhopper_pending_calls"] {
        for reason in labels(metric, "reason") {
            let sections = ["stuck", "pending", "parked"].map(|state| format!("{state}-{reason}"));
            let found = sections.iter().any(|section| anchors.contains(section));
            assert!(
                found || reason == "not_due",
                "no section for {reason} of {metric}"
            );
        }
    }
    for reason in labels("leafhopper_stuck_batches", "reason") {
        assert!(anchors.contains(&format!("batch-{reason}")), "{reason}");
    }
    // Those of parked calls have one alert together, and those of two others are told by another metric.
    let elsewhere = ["breaker_open", "leaf_paused", "not_due"];
    for reason in labels("leafhopper_stuck_calls", "reason") {
        let found = RULES.split(['"', '|']).any(|part| part == reason);
        let is_elsewhere =
            PARKED_REASONS.contains(&reason.as_str()) || elsewhere.contains(&reason.as_str());
        assert!(
            found || is_elsewhere,
            "no alert for calls stuck by {reason}"
        );
    }
}

#[test]
fn each_command_that_is_told_can_be_typed() {
    let rules = without_templates(RULES);
    for (place, text, least) in [
        ("the runbook", RUNBOOK, 80),
        ("the alerts", &rules, 30),
        ("the dashboard", DASHBOARD, 1),
    ] {
        let commands = commands_in(text);
        assert!(commands.len() >= least, "{place}: {commands:?}");
        for command in commands {
            if let Err(problem) = parse(&command) {
                panic!("{place}: {}: {problem}", command.join(" "));
            }
        }
    }
}

#[test]
fn each_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, text) in [("docs/runbook.md", RUNBOOK), ("README.md", README)] {
        let folder = root.join(file).parent().unwrap().to_owned();
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.starts_with("http") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                root.join(file)
            } else {
                folder.join(path)
            };
            assert!(target.exists(), "{file}: {link}");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                assert!(anchors(&text).contains(anchor), "{file}: {link}");
            }
        }
    }
}

#[tokio::test]
async fn each_query_of_runbook_and_alerts_runs() {
    let bed = Bed::new().await;
    let id = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
    let batch = format!("INSERT INTO leafhopper.batch (id, sealed) VALUES ('{id}', false)");
    bed.app.execute(&batch).await;
    let runbook = fenced(RUNBOOK, "sql");
    let rules = without_templates(RULES);
    let rules: Vec<String> = rules
        .split("SELECT ")
        .skip(1)
        .map(|rest| {
            let words = rest.split_whitespace().collect::<Vec<_>>().join(" ");
            let (query, limit) = words.split_once(" LIMIT ").expect("a bounded query");
            let limit = limit.split(|c: char| !c.is_ascii_digit()).next().unwrap();
            format!("SELECT {query} LIMIT {limit}")
        })
        .collect();
    assert!(
        runbook.len() >= 6 && rules.len() >= 2,
        "{runbook:#?}{rules:#?}"
    );
    for query in runbook.iter().chain(&rules) {
        bed.app.execute(query).await;
    }
}

/// The section that a link leads to, with those below it.
pub(crate) fn section(url: &str) -> &'static str {
    let (_, anchor) = url.split_once('#').unwrap();
    let mut headings = RUNBOOK.match_indices("\n#").map(|(at, _)| at + 1);
    let start = headings.find(|at| anchor_of(RUNBOOK[*at..].lines().next().unwrap()) == anchor);
    let start = start.unwrap_or_else(|| panic!("no section {anchor}"));
    let level = |text: &str| text.chars().take_while(|c| *c == '#').count();
    let mut below = headings;
    let end = below.find(|at| level(&RUNBOOK[*at..]) <= level(&RUNBOOK[start..]));
    &RUNBOOK[start..end.unwrap_or(RUNBOOK.len())]
}

/// The commands of ours in a text, in words: lines of its code, and what stands in backticks.
pub(crate) fn commands_in(text: &str) -> Vec<Vec<String>> {
    let mut lines: Vec<String> = fenced(text, "sh")
        .iter()
        .flat_map(|block| lines_of(block))
        .collect();
    let mut prose = String::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 0 {
            prose.push_str(part);
        }
    }
    let quoted = prose.split('`').skip(1).step_by(2);
    lines.extend(quoted.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")));
    let ours = lines.iter().filter(|line| line.starts_with("leafhopper "));
    ours.map(|line| words(line)).collect()
}

/// Whether our command line takes these words.
pub(crate) fn parse(command: &[String]) -> Result<(), String> {
    let filled = command.iter().map(|word| {
        let known = PLACEHOLDERS.iter().find(|(name, _)| name == word);
        known.map_or(word.as_str(), |(_, value)| value)
    });
    match Cli::try_parse_from(filled) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// A line as a shell splits it, which knows single quotes and comments.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' if !is_quoted => words.extend(word.take()),
            '#' | '|' if !is_quoted && word.is_none() => break,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn a_line_is_split_as_a_shell_does() {
    let split = words("leafhopper resolve 5 --body '{\"a\": 1}' --reason '' # said so");
    assert_eq!(
        split,
        [
            "leafhopper",
            "resolve",
            "5",
            "--body",
            "{\"a\": 1}",
            "--reason",
            ""
        ]
    );
}

fn lines_of(block: &str) -> Vec<String> {
    block.lines().map(|line| line.trim().to_owned()).collect()
}

/// The blocks of code in that language.
fn fenced(text: &str, language: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    blocks.map(str::to_owned).collect()
}

/// The alerts' text with a leaf's name in it, and without conditions.
fn without_templates(rules: &str) -> String {
    let mut parts = rules.split("{{");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (template, rest) = part.split_once("}}").unwrap();
        if template.trim() == "$labels.leaf" {
            text.push_str("git");
        }
        text.push_str(rest);
    }
    text
}

/// The state and reason of each line that `show` explains.
fn told() -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/present/lines.rs");
    let source = std::fs::read_to_string(source).unwrap();
    let lines = source.split("line(\"").skip(1);
    let pairs = lines.filter_map(|line| {
        let (state, rest) = line.split_once("\", \"")?;
        let (reason, _) = rest.split_once('"')?;
        (!reason.is_empty() && reason != "*").then(|| format!("{state}-{reason}"))
    });
    pairs.collect()
}

/// The values that a label of a metric can have.
fn labels(metric: &str, label: &str) -> BTreeSet<String> {
    let metrics = Metrics::new();
    metrics.touch("git");
    let text = metrics.render();
    let series = text
        .lines()
        .filter(|line| line.starts_with(&format!("{metric}{{")));
    let values = series.map(|line| {
        let (_, rest) = line.split_once(&format!("{label}=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    });
    let values: BTreeSet<String> = values.collect();
    assert!(!values.is_empty(), "{metric} has no {label}");
    values
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let headings = text.lines().filter(|line| {
        is_code ^= line.trim().starts_with("```");
        !is_code && line.starts_with('#')
    });
    headings.map(anchor_of).collect()
}

/// As GitHub and GitLab make it of a heading.
fn anchor_of(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || "_- ".contains(*c));
    kept.collect::<String>().replace(' ', "-")
}
