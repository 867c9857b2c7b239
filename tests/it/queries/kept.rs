//! Plans as they are kept: made once, for any parameters, on tables that were empty then, or had nothing but a backlog.

use super::{BATCHES, HOT, INSTANCE, plan_as, query, table};
use crate::harness::{Bed, app::call};

/// Statements that are prepared, and the indexes without which they would read what they need not.
const PREPARED: [&str; 11] = [
    "claim.sql",
    "claim_fresh.sql",
    "prior.sql",
    "record_plain.sql",
    "record_confirmed.sql",
    "record_other.sql",
    "record_probe.sql",
    "doubts.sql",
    "settle_doubts.sql",
    "free_keys.sql",
    "look_at_batches.sql",
];

#[tokio::test]
async fn the_plans_that_are_kept_use_the_indexes_although_the_tables_were_empty() {
    let bed = Bed::new().await;
    are_right(&bed, true).await;
}

/// While an old snapshot is open, an index holds an entry of each call that ever was in the state that the index is
/// for, however few there are now: the planner takes it for small.
#[tokio::test]
async fn the_plans_that_are_kept_look_calls_up_although_none_was_under_way() {
    let bed = Bed::new().await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf0', '/' FROM generate_series(1, 20000); \
             INSERT INTO leafhopper.outbox (leaf, path, not_before) \
             SELECT 'leaf1', '/', now() FROM generate_series(1, 20000); \
             ANALYZE leafhopper.outbox, leafhopper.dispatch, leafhopper.result, leafhopper.finished",
        )
        .await;
    are_right(&bed, false).await;
}

/// Each call is looked up: no index of the hot table is read from end to end. `all`: and all that is expected is used.
async fn are_right(bed: &Bed, all: bool) {
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
        for index in scanned.iter().filter(|it| it.starts_with("dispatch_")) {
            wrong.push(format!("{name} reads all of {index}"));
        }
        for index in expected.split(' ').filter(|_| all) {
            if !indexes.contains(index) {
                wrong.push(format!("{name} does not use {index} but {indexes:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Entries that are dead, in a part in which nothing is due, take their time too: the marks rest on it (engine/marks.rs).
#[tokio::test]
async fn a_claim_says_how_long_it_looked_also_where_it_has_found_nothing() {
    let bed = Bed::new().await;
    bed.app.insert(call("leaf0")).await;
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.instance (id, name, lease) VALUES ('{INSTANCE}', 'i', '1 hour');
             INSERT INTO leafhopper.origin VALUES (true, 1, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int4, 'n', 1)"
        ))
        .await;
    let [_, parameters, _] = table::<3>(HOT)
        .find(|cells| cells[0] == "claim.sql")
        .unwrap();
    let parameters = parameters
        .replace("LEAVES", "'{leaf0,leaf1,leaf2}'")
        .replace("INSTANCE", &format!("'{INSTANCE}'"));
    let slow = query("claim.sql").replace(
        "AND d.due_at >= w.due_from",
        "AND (SELECT count(*) FROM generate_series(1, 3000000)) > 0 AND d.due_at >= w.due_from",
    );
    let types = super::parameters_of(&slow).join(", ");
    bed.app
        .execute(&format!("PREPARE it({types}) AS {slow}\n"))
        .await;
    let claimed = bed
        .app
        .client()
        .query_one(&format!("EXECUTE it({parameters})"), &[])
        .await
        .unwrap();
    assert_eq!(claimed.get::<_, String>("leaf"), "leaf0");
    let looked_for: f64 = claimed.get("looked_for");
    assert!(looked_for >= 0.05, "{looked_for} s");
}
