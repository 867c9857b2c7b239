//! What is in `deploy/` for the person on call: alerts and a dashboard, with Debian's Prometheus and promtool.

mod dashboard;
mod live;
mod mends;
mod prometheus;
mod run;

use std::path::Path;

use prometheus::{program, promtool};

use crate::harness::folder::Folder;

const RULES: &str = include_str!("../../../deploy/prometheus/leafhopper.rules.yml");

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus"))
}

#[test]
fn promtool_finds_the_rules_well_and_each_fires_when_it_should() {
    let Some(program) = program("promtool") else {
        return;
    };
    for words in [
        &["check", "rules", "--lint-fatal", "leafhopper.rules.yml"][..],
        &["test", "rules", "leafhopper.rules.test.yml"][..],
    ] {
        let output = promtool(&program, folder(), words, "");
        assert!(output.status.success(), "promtool {words:?}: {output:#?}");
    }
}

#[test]
fn the_readme_s_configuration_of_prometheus_loads_the_rules() {
    let Some(program) = program("promtool") else {
        return;
    };
    let readme = include_str!("../../../README.md");
    let (_, block) = readme.split_once("```yaml\n# prometheus.yml\n").unwrap();
    let folder = Folder::new();
    folder.write("prometheus.yml", block.split("```").next().unwrap());
    folder.write("leafhopper.rules.yml", RULES);
    let words = ["check", "config", "prometheus.yml"];
    let output = promtool(&program, folder.path(), &words, "");
    assert!(output.status.success(), "{output:#?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("rules found"), "{said}");
}

#[test]
fn each_alert_has_a_test_in_which_it_fires() {
    let tests = std::fs::read_to_string(folder().join("leafhopper.rules.test.yml")).unwrap();
    for name in names() {
        let fires = tests.contains(&format!("alertname=\"{name}\", alertstate=\"firing\""))
            || tests.contains(&format!("alertname: {name}\n"));
        assert!(fires, "{name} has none");
    }
}

/// The alerts' names, in order.
pub(crate) fn names() -> Vec<&'static str> {
    let lines = RULES.lines().map(str::trim);
    let mut names: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("- alert: "))
        .collect();
    names.dedup();
    names
}
