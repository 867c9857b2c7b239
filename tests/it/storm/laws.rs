//! The leaves' ledger against the tables.

use std::collections::{BTreeMap, HashMap};

use super::World;
use crate::harness::app::App;

/// What the ledger and the tables disagree about.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// Effects that took place twice.
    pub(super) doubled: Vec<String>,
    /// Calls that the tables and the ledger tell different stories of.
    pub(super) lost: Vec<String>,
    /// PUTs that stand, or don't, since a request that was given up arrived after all: nobody can ask that leaf.
    pub(super) late_puts: usize,
}

/// How often something was sent about an effect, and how often that undid it.
#[derive(Debug, Default, Clone, Copy)]
struct Sent {
    undoes: usize,
    made: usize,
    undone: usize,
}

/// By effect: what its calls say, how many results it has had, how many of them stand, and whether a call or a
/// compensation waits for somebody's word.
const EFFECTS: &str = "
    SELECT c.leaf, c.key, array_agg(DISTINCT c.state) AS states,
           bool_or(c.state = 'confirmed' AND c.undone_at IS NULL) AS confirmed,
           (SELECT count(*) FROM leafhopper.result r WHERE r.leaf = c.leaf AND r.key = c.key) AS results,
           (SELECT count(*) FROM leafhopper.result r
             WHERE r.leaf = c.leaf AND r.key = c.key AND r.undone_at IS NULL) AS standing,
           EXISTS (SELECT FROM leafhopper.dispatch d
                    WHERE d.leaf = c.leaf AND d.key = c.key AND d.state = 'parked') AS parked
      FROM leafhopper.call c WHERE c.undoes IS NULL GROUP BY c.leaf, c.key";

pub(super) async fn broken(world: &World, app: &App) -> Broken {
    let effects = world.leaf.all_effects();
    let mut sent: HashMap<String, Sent> = HashMap::new();
    for request in world.leaf.all_requests() {
        let sent = sent.entry(request.key).or_default();
        match request.method.as_str() {
            "GET" => {}
            "DELETE" => {
                sent.undoes += 1;
                sent.undone += usize::from(request.executed);
            }
            _ => sent.made += 1,
        }
    }
    let mut broken = Broken::default();
    let mut asked_for = BTreeMap::new();
    for row in app.rows(EFFECTS).await {
        let key = row["key"].as_str().unwrap().to_owned();
        let number = |name: &str| usize::try_from(row[name].as_u64().unwrap()).unwrap();
        let (results, standing) = (number("results"), number("standing"));
        let executed = effects.get(&key).copied().unwrap_or_default();
        let there = world.leaf.standing(&key);
        let sent = sent.get(&key).copied().unwrap_or_default();
        let parked = row["parked"] == true;
        let put = row["leaf"] == "put";
        let story = format!("{row}: {executed} effects, {there} stand, {sent:?}");
        // A PUT that is executed again is the same effect.
        if there > 1 || !put && executed > results + usize::from(parked) {
            broken.doubled.push(story);
        } else if standing > 1
            || (standing == 1) != (row["confirmed"] == true)
            || standing == 1 && executed == 0
            || !put && !parked && (executed != results || sent.undone != results - standing)
        {
            broken.lost.push(story);
        } else if there != standing && !parked {
            if put && (sent.made > 1 || sent.undoes > 1) {
                broken.late_puts += 1;
            } else {
                broken.lost.push(story);
            }
        }
        asked_for.insert(key, ());
    }
    for key in effects.keys().filter(|key| !asked_for.contains_key(*key)) {
        broken
            .lost
            .push(format!("{key}: an effect that nobody asked for"));
    }
    broken
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
