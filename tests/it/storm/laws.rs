//! The leaves' ledger against the tables.

use std::collections::BTreeMap;

use super::World;
use crate::harness::app::App;

/// Effects that took place twice, and calls that the tables and the ledger tell different stories of.
pub(super) async fn broken(world: &World, app: &App) -> (Vec<String>, Vec<String>) {
    let effects = world.leaf.all_effects();
    let mut keys = BTreeMap::new();
    for row in app
        .rows(
            "SELECT c.leaf, c.key, array_agg(DISTINCT c.state) AS states, \
                    (SELECT count(*) FROM leafhopper.result r \
                      WHERE r.leaf = c.leaf AND r.key = c.key AND r.undone_at IS NULL) AS results \
               FROM leafhopper.call c GROUP BY c.leaf, c.key",
        )
        .await
    {
        keys.insert(row["key"].as_str().unwrap().to_owned(), row);
    }
    let (mut doubled, mut lost) = (Vec::new(), Vec::new());
    for (key, count) in &effects {
        // A PUT that is executed again is the same effect.
        if *count > 1 && !key.starts_with("put ") {
            doubled.push(format!("{key}: {count} effects, {:?}", keys.get(key)));
        }
        if !keys.contains_key(key) {
            lost.push(format!("{key}: an effect that nobody asked for"));
        }
    }
    for (key, row) in &keys {
        let there = effects.contains_key(key);
        let states: Vec<&str> = row["states"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|state| state.as_str())
            .collect();
        let confirmed = states.contains(&"confirmed");
        let parked = states.contains(&"parked");
        let known = match row["results"].as_u64().unwrap() {
            0 => !confirmed && (!there || parked),
            1 => there,
            _ => false,
        };
        if !known {
            lost.push(format!("{key}: {row}, effect there: {there}"));
        }
    }
    (doubled, lost)
}

/// How the calls have ended, by leaf.
pub(super) async fn tally(app: &App) -> String {
    let rows = app
        .rows(
            "SELECT c.leaf, coalesce(r.source, c.state) AS how, count(*) \
               FROM leafhopper.call c LEFT JOIN leafhopper.result r ON r.call_id = c.id \
              GROUP BY 1, 2 ORDER BY 1, 2",
        )
        .await;
    let mut by_leaf: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows {
        let entry = by_leaf.entry(row["leaf"].as_str().unwrap().to_owned());
        let how = row["how"].as_str().unwrap();
        entry.or_default().push(format!("{how} {}", row["count"]));
    }
    let lines = by_leaf
        .iter()
        .map(|(leaf, hows)| format!("{leaf}: {}", hows.join(", ")));
    lines.collect::<Vec<_>>().join("; ")
}
