//! Plans as they are kept: made once, for any parameters, on tables that were empty then.

use super::{BATCHES, HOT, INSTANCE, plan_as, table};
use crate::harness::Bed;

/// Statements that are prepared, and the indexes without which they would read what they need not.
const PREPARED: [&str; 9] = [
    "claim.sql",
    "claim_fresh.sql",
    "prior.sql",
    "record_plain.sql",
    "record_confirmed.sql",
    "record_other.sql",
    "doubts.sql",
    "settle_doubts.sql",
    "look_at_batches.sql",
];

#[tokio::test]
async fn the_plans_that_are_kept_use_the_indexes_although_the_tables_were_empty() {
    let bed = Bed::new().await;
    // As the program sets it for what it prepares.
    bed.app.execute("SET enable_seqscan = off").await;
    let mut wrong = Vec::new();
    for [name, parameters, expected] in table(HOT) {
        if !PREPARED.contains(&name) {
            continue;
        }
        let parameters = parameters
            .replace("LEAVES", "'{leaf0,leaf1,leaf2}'")
            .replace("BATCHES", BATCHES)
            .replace("INSTANCE", &format!("'{INSTANCE}'"));
        let (indexes, scanned) = plan_as("force_generic_plan", &bed.app, name, &parameters).await;
        for table in [
            "outbox", "dispatch", "finished", "result", "attempt", "batch",
        ] {
            if scanned.contains(table) {
                wrong.push(format!("{name} reads all of {table}"));
            }
        }
        for index in expected.split(' ') {
            if !indexes.contains(index) {
                wrong.push(format!("{name} does not use {index} but {indexes:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
