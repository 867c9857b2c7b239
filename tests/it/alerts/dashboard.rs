//! The dashboard's file: what it asks for, and that it is sound by itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const FILE: &str = include_str!("../../../deploy/grafana/leafhopper.json");

/// A query of a panel, with the variables filled in.
#[derive(Debug, Clone)]
pub(super) struct Query {
    pub(super) panel: String,
    /// `A`, `B` …
    pub(super) name: String,
    pub(super) expression: String,
}

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(FILE).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// Every query, as Grafana would send it with everything chosen.
pub(super) fn queries() -> Vec<Query> {
    let panels = panels();
    let all = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(|target| {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression
                .replace("$__rate_interval", "1m")
                .replace("$__range", "1m")
                .replace("$job", "leafhopper")
                .replace("$instance", ".*")
                .replace("$leaf", ".*");
            assert!(!expression.contains('$'), "{expression}");
            Query {
                panel: text(panel, "title"),
                name: text(&target, "refId"),
                expression,
            }
        })
    });
    all.collect()
}

fn text(object: &Value, name: &str) -> String {
    object[name].as_str().unwrap_or_default().to_owned()
}

#[test]
fn every_panel_says_what_it_shows_and_has_a_place_of_its_own() {
    let mut ids = BTreeSet::new();
    let mut taken: BTreeMap<(u64, u64), String> = BTreeMap::new();
    for panel in panels() {
        let title = text(&panel, "title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id");
        assert!(!title.is_empty(), "{panel}");
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in place("x")..place("x") + place("w") {
            assert!(x < 24, "{title} is too wide");
            for y in place("y")..place("y") + place("h") {
                let under = taken.insert((x, y), title.clone());
                assert_eq!(under, None, "{title} lies over it");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        let description = text(&panel, "description");
        assert!(description.ends_with('.'), "{title}: {description}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        assert!(!panel["targets"].as_array().unwrap().is_empty(), "{title}");
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        let has_none = ["table", "state-timeline"].contains(&text(&panel, "type").as_str());
        assert!(unit.is_string() || has_none, "{title} has no unit");
        let steps = &panel["fieldConfig"]["defaults"]["thresholds"]["steps"];
        assert!(!steps.as_array().unwrap().is_empty(), "{title}");
    }
}

#[test]
fn the_variables_are_those_that_the_queries_use() {
    let dashboard: Value = serde_json::from_str(FILE).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<String> = variables.iter().map(|v| text(v, "name")).collect();
    assert_eq!(names, ["datasource", "job", "instance", "leaf"]);
    for name in names {
        let uses = FILE.matches(&format!("${name}")).count()
            + FILE.matches(&format!("${{{name}}}")).count();
        assert!(uses > 1, "${name} is not used");
    }
}
