//! The statements of `sql/queries`: each prepares, those for the hot path use their indexes however much
//! history there is, and what calls itself repeatable can be repeated. `back.rs`: claims that are
//! given back; `late.rs`: what comes late, or meanwhile;
//! `people.rs`: what people ask for.

mod back;
mod kept;
mod late;
mod people;

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};
use tokio_postgres::types::Type;

use crate::{
    harness::{
        Bed,
        app::{App, keyed},
    },
    outbox::table,
};

const INSTANCE: &str = "00000000-0000-0000-0000-00000000000a";

pub(crate) fn queries(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut queries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    queries.sort();
    queries
}

fn query(name: &str) -> String {
    let queries = queries("sql/queries");
    let found = queries.into_iter().find(|(file, _)| file == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

/// The types of a statement's parameters, as its header lists them: `$1 int8[] call ids   $2 text …`.
pub(crate) fn parameters_of(sql: &str) -> Vec<&str> {
    let header = sql.lines().take_while(|line| line.starts_with("--"));
    let words: Vec<&str> = header.flat_map(str::split_whitespace).collect();
    let mut types = Vec::new();
    for pair in words.windows(2) {
        if pair[0] == format!("${}", types.len() + 1) {
            types.push(pair[1].trim_end_matches(','));
        }
    }
    types
}

#[tokio::test]
async fn every_statement_prepares_and_says_what_it_is_for() {
    let bed = Bed::new().await;
    for folder in ["sql/queries", "sql/checks"] {
        let found = queries(folder);
        assert!(!found.is_empty());
        for (name, sql) in found {
            // With the types that the header gives, as the program does: it is checked with them.
            let types = parameters_of(&sql).join(", ");
            let types = if types.is_empty() {
                types
            } else {
                format!("({types})")
            };
            let prepare = format!("PREPARE it{types} AS {sql}; DEALLOCATE it");
            if let Err(error) = bed.app.client().batch_execute(&prepare).await {
                panic!("{name}: {error:?}");
            }
            for heading in ["-- Caller: ", "-- Index: ", "-- Locks: ", "-- Repeatable: "] {
                assert!(sql.contains(heading), "{name} has no {heading}");
            }
        }
    }
}

/// Twenty thousand calls of each kind, and a history of forty thousand; then what the planner knows.
pub(crate) async fn fill(app: &App) {
    app.execute(&format!(
        "INSERT INTO leafhopper.instance (id, name, lease) VALUES ('{INSTANCE}', 'i', '1 hour'); \
         SET session_replication_role = replica; \
         INSERT INTO leafhopper.outbox (leaf, key, path, ordering_key, priority, batch_id) \
         SELECT 'leaf' || n % 3, 'k' || n, '/', \
                CASE WHEN n % 10 = 4 THEN 'o' || n % 500 END, n % 2, \
                CASE WHEN n % 10 IN (7, 8) THEN md5((n % 2000)::text)::uuid END \
           FROM generate_series(1, 60000) AS n; \
         INSERT INTO leafhopper.batch (id, state) \
         SELECT md5(n::text)::uuid, CASE WHEN n % 200 = 7 THEN 'compensating' ELSE 'open' END \
           FROM generate_series(1, 2000) AS n WHERE n % 10 IN (7, 8); \
         INSERT INTO leafhopper.batch (id, state, finished_at) \
         SELECT md5('done ' || n)::uuid, 'succeeded', now() FROM generate_series(1, 20000) AS n; \
         INSERT INTO leafhopper.dispatch (call_id, leaf, key, run_when, priority, enqueued_at, batch_id) \
         SELECT id, leaf, key, 'ready', priority, now(), batch_id FROM leafhopper.outbox WHERE id <= 20000; \
         INSERT INTO leafhopper.finished (call_id, state, reason, batch_id) \
         SELECT id, 'failed', 'rejected', batch_id FROM leafhopper.outbox WHERE id > 20000 AND id <= 40000; \
         INSERT INTO leafhopper.result (leaf, key, generation, call_id, status, source, batch_id) \
         SELECT leaf, key, 1, id, 200, 'response', batch_id FROM leafhopper.outbox WHERE id > 40000; \
         INSERT INTO leafhopper.batch_mark (batch_id) \
         SELECT md5((n % 2000)::text)::uuid FROM generate_series(1, 20000) AS n; \
         SET session_replication_role = origin; \
         UPDATE leafhopper.dispatch SET due_at = now() + n.at \
           FROM (SELECT interval '1 s' * (call_id - 3000) AS at, call_id FROM leafhopper.dispatch) n \
          WHERE dispatch.call_id = n.call_id AND dispatch.call_id % 10 = 1; \
         UPDATE leafhopper.dispatch SET deadline = now() + interval '1 hour' * call_id WHERE call_id % 10 = 2; \
         UPDATE leafhopper.dispatch SET state = 'in_doubt', in_doubt_since = now(), due_at = now(), tries = 1, \
                first_claimed_at = now(), instance = '{INSTANCE}', round = 1 \
          WHERE call_id % 100 = 3; \
         UPDATE leafhopper.dispatch d SET ordering_key = o.ordering_key, held = 'order' \
           FROM leafhopper.outbox o WHERE o.id = d.call_id AND o.ordering_key IS NOT NULL AND d.call_id % 10 = 4; \
         UPDATE leafhopper.dispatch SET held = 'key' WHERE call_id % 1000 = 5; \
         UPDATE leafhopper.dispatch SET state = 'dispatching', instance = '{INSTANCE}', round = 7, tries = 1, \
                claimed_at = now(), first_claimed_at = now(), alive_until = now() \
          WHERE call_id % 1000 = 6; \
         INSERT INTO leafhopper.attempt (call_id, attempt, class) \
         SELECT call_id, 1, 'failed' FROM leafhopper.finished; \
         INSERT INTO leafhopper.operator_action (actor, action, call_id, reason) \
         SELECT 'ada', 'retry', call_id, 'outage over' FROM leafhopper.finished; \
         ANALYZE leafhopper.operator_action, leafhopper.attempt, leafhopper.batch, leafhopper.batch_mark, leafhopper.outbox, leafhopper.dispatch, leafhopper.finished, leafhopper.result"
    ))
    .await;
}

/// The indexes that a plan uses, and the tables and indexes that it reads from end to end.
fn collect(plan: &Value, indexes: &mut BTreeSet<String>, scanned: &mut BTreeSet<String>) {
    match plan {
        Value::Object(node) => {
            let text = |name| node.get(name).and_then(Value::as_str);
            let kind = text("Node Type");
            if let Some(index) = text("Index Name") {
                indexes.insert(index.to_owned());
                if !node.contains_key("Index Cond") {
                    scanned.insert(index.to_owned());
                }
            }
            if kind == Some("Seq Scan") {
                scanned.insert(node["Relation Name"].as_str().unwrap().to_owned());
            }
            let mut below = BTreeSet::new();
            for value in node.values() {
                collect(value, indexes, &mut below);
            }
            // One that stops at the first rows reads no index from end to end.
            if kind == Some("Limit") {
                below.retain(|it| !indexes.contains(it));
            }
            scanned.append(&mut below);
        }
        Value::Array(values) => {
            for value in values {
                collect(value, indexes, scanned);
            }
        }
        _ => {}
    }
}

/// Two batches of [`fill`].
const BATCHES: &str = "ARRAY[md5('7'), md5('17')]::uuid[]";

/// Statements with their parameters (`LEAVES`, `BATCHES` and `INSTANCE` stand for those of [`fill`]), and the indexes
/// that they must use.
const HOT: &str = r#"
claim.sql :: INSTANCE, 8, LEAVES, '{16,16,16}', '{30,30,30}', '{86400,86400,86400}', '{NULL,60,60}', '{2,2,2}', ARRAY['[""]','[""]','[""]'], 5, 0, ARRAY['{-32768}','{-32768,0}','{-32768,0}'], ARRAY['{0}','{0,7}','{0,7}'], ARRAY['{32768}','{0,32768}','{0,32768}'], '{0,0,0}' :: dispatch_fresh dispatch_timed dispatch_doubt dispatch_one_at_a_time
claim_fresh.sql :: INSTANCE, 8, LEAVES, '{16,16,16}', '{30,30,30}', '{86400,86400,86400}', ARRAY['[""]','[""]','[""]'], ARRAY['{-32768}','{-32768,0}','{-32768,0}'], ARRAY['{0}','{0,7}','{0,7}'], ARRAY['{32768}','{0,32768}','{0,32768}'] :: dispatch_fresh dispatch_one_at_a_time
prior.sql :: '{leaf1}', 8192 :: outbox_pkey result_pkey
size_of_body.sql :: 7 :: outbox_pkey
read_body.sql :: 7 :: outbox_pkey
asked_call.sql :: 7 :: outbox_pkey
record_plain.sql :: '{1,2}', '{leaf1,leaf2}', '{k1,k2}', '{1,1}', '{200,200}', '{"{}","{}"}', '{NULL,NULL}', '{NULL,NULL}', '{false,false}', '{NULL,NULL}', '{1,1}' :: dispatch_pkey dispatch_held_key
record_confirmed.sql :: '{1,2}', '{leaf1,leaf2}', '{k1,k2}', '{1,1}', '{200,200}', '{"{}","{}"}', '{NULL,NULL}', '{NULL,NULL}', '{false,false}', '{NULL,NULL}', '{1,1}', 'i' :: dispatch_pkey result_pkey dispatch_held_key
record_other.sql :: INSTANCE, 'i', '{1,2}', '{1,1}', '{leaf1,leaf2}', '{k1,k2}', '{1,1}', '{retry,failed}', '{1,1}', '{1,1}', '{false,false}', '{NULL,rejected}', '{retry,failed}', '{500,404}', '{a,b}', '{c,d}', '{1,1}', '{NULL,NULL}' :: dispatch_pkey dispatch_held_key attempt_call
record_probe.sql :: 1, 1, 'leaf1', 'k1', 'again', 1, NULL, 0, 3, 200, '{}', NULL, NULL, false, NULL, NULL, NULL, NULL, 1, 'i', 0, false, 3 :: dispatch_pkey dispatch_held_key
expire.sql :: 10 :: dispatch_ends dispatch_pkey
doubts.sql :: LEAVES, 500, '{30,30,30}', '{NULL,60,60}', 8192, ARRAY['[]','[]','["a"]'] :: dispatch_doubt outbox_pkey
answer_doubts.sql :: LEAVES, 500 :: dispatch_doubt outbox_pkey result_pkey
settle_doubts.sql :: '{3}', '{1}', '{ask}', '{NULL}', '{30}', '{false}' :: dispatch_pkey
give_back.sql :: INSTANCE, 7, '{}', '{6}' :: dispatch_one_at_a_time
reclaim.sql :: ARRAY[INSTANCE]::uuid[], 1000 :: dispatch_one_at_a_time
promote_arrived.sql :: 1000 :: dispatch_arrived
promote_next.sql :: '{leaf1,leaf2}', '{o4,o14}' :: dispatch_held_order dispatch_one_head
waiting_keys.sql :: 1000 :: dispatch_held_order dispatch_one_head
free_keys.sql :: 1000 :: dispatch_held_key dispatch_one_at_a_time
untracked_take_up.sql :: 50000, 20000, 2000 :: outbox_pkey dispatch_pkey finished_pkey result_pkey
look_around.sql :: LEAVES, NULL :: dispatch_fresh dispatch_timed dispatch_doubt dispatch_ends dispatch_arrived dispatch_held_order dispatch_held_key batch_mark_pkey batch_unfinished
batch_marks.sql :: 500, 1000 :: batch_mark_pkey
batch_unfinished.sql :: '00000000-0000-0000-0000-000000000000', 100 :: batch_unfinished
lock_batches.sql :: BATCHES :: batch_pkey
look_at_batches.sql :: BATCHES, BATCHES, '{7,17}', BATCHES, '{leaf1}', '{leaf0,leaf1,leaf2}' :: batch_pkey dispatch_batch outbox_batch finished_fails_batch result_batch batch_mark_pkey
sweep_batches.sql :: 1000, BATCHES :: dispatch_batch
release_follow_ups.sql :: BATCHES, 1000 :: dispatch_batch
effects_to_undo.sql :: BATCHES, '{leaf1}', '{leaf0,leaf1,leaf2}', 50 :: result_batch outbox_pkey outbox_compensation dispatch_batch
add_compensations.sql :: '{40007}', '{1}', '{DELETE}', '{/}', '{NULL}' :: outbox_pkey result_pkey
remake_compensations.sql :: '{7}', '{DELETE}', '{/}', '{NULL}' :: dispatch_pkey outbox_pkey
release_compensations.sql :: '{7}', '{NULL}', '{NULL}', '{0}' :: dispatch_pkey
end_teardowns.sql :: BATCHES :: batch_live
stuck_batches.sql :: 5, 200 :: batch_live
recent_results.sql :: 1000 :: result_seq
show_claim.sql :: 7 :: dispatch_pkey
last_words.sql :: '{20001,20002}' :: attempt_call
prune_calls.sql :: true, 2592000, 0, 1000 :: outbox_pkey finished_pkey result_pkey dispatch_pkey outbox_key attempt_call attempt_pkey
prune_batches.sql :: true, 2592000, 0, '00000000-0000-0000-0000-000000000000', 100, 1000 :: batch_created outbox_batch finished_pkey result_pkey dispatch_pkey outbox_key attempt_call attempt_pkey batch_mark_pkey
prune_results.sql :: true, 2592000, 0, 1000 :: result_seq result_pkey outbox_key
prune_bodies.sql :: true, 2592000, 0, 1000 :: result_seq batch_pkey outbox_batch
prune_attempts.sql :: true, 2592000, 0, 1000 :: attempt_pkey outbox_pkey
prune_actions.sql :: true, 2592000, 0, 1000 :: operator_action_pkey operator_action_leaf
search_calls.sql :: '{"{}"}', 'k', 60000, 500, 50 :: outbox_pkey dispatch_pkey
"#;

#[tokio::test]
async fn the_hot_statements_use_their_indexes() {
    let bed = Bed::new().await;
    fill(&bed.app).await;
    let mut wrong = Vec::new();
    // expire.sql for ten: to delete a thousand of 20,000 rows, reading them all is the better plan.
    for [name, parameters, expected] in table(HOT) {
        let parameters = parameters
            .replace("LEAVES", "'{leaf0,leaf1,leaf2}'")
            .replace("BATCHES", BATCHES)
            .replace("INSTANCE", &format!("'{INSTANCE}'"));
        let large = [
            "outbox",
            "dispatch",
            "finished",
            "result",
            "attempt",
            "batch_mark",
            "operator_action",
        ];
        wrong.extend(wrong_plan(&bed.app, [name, &parameters, expected], &large).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // What is counted for the gauges reads all live calls, and nothing of the history.
    let (indexes, scanned) = plan(&bed.app, "stats.sql", "").await;
    let history = ["outbox", "finished", "result", "attempt"];
    let read = history.iter().find(|table| scanned.contains(**table));
    assert!(read.is_none(), "{indexes:?} {scanned:?}");
    for leaves in [
        "{}",
        r#"{"leaf0": {"rate_limited": true}, "leaf1": {"breaker_open": true}, "leaf2": {"blocked": [""]}}"#,
        r#"{"leaf0": {"credentials": []}, "leaf1": {}, "leaf2": {}}"#,
    ] {
        bed.app
            .execute(&format!(
                "UPDATE leafhopper.instance SET leaves = '{leaves}'; \
                 UPDATE leafhopper.dispatch SET credential = 'c' WHERE call_id % 1000 = 90; \
                 UPDATE leafhopper.dispatch SET tries = 1, due_at = now() + interval '1 hour', first_claimed_at = now() \
                  WHERE call_id % 1000 = 60 AND state = 'pending'; \
                 UPDATE leafhopper.dispatch d SET held = NULL \
                  WHERE held = 'order' AND call_id = (SELECT min(x.call_id) FROM leafhopper.dispatch x \
                                                       WHERE x.leaf = d.leaf AND x.ordering_key = d.ordering_key); \
                 INSERT INTO leafhopper.leaf_control (leaf, paused) VALUES ('leaf2', true) ON CONFLICT DO NOTHING"
            ))
            .await;
        counts_agree_with_the_view(&bed.app).await;
    }
}

/// The gauges tell of groups what the view tells of each call.
async fn counts_agree_with_the_view(app: &App) {
    let counted = format!(
        "SELECT leaf, state, coalesce(reason, '') AS reason, sum(calls)::int8 AS calls, sum(stuck)::int8 AS stuck, \
                min(first_stuck) AS first_stuck \
           FROM ({}) s GROUP BY 1, 2, 3",
        query("stats.sql")
    );
    let viewed = "SELECT leaf, state, coalesce(reason, '') AS reason, count(*) AS calls, \
                         count(*) FILTER (WHERE stuck) AS stuck, min(id) FILTER (WHERE stuck) AS first_stuck \
                    FROM leafhopper.call WHERE finished_at IS NULL AND reason IS DISTINCT FROM 'untracked' GROUP BY 1, 2, 3";
    let differences = format!(
        "WITH c AS MATERIALIZED ({counted}), v AS MATERIALIZED ({viewed}) \
         SELECT coalesce(jsonb_agg(x), '[]') FROM ( \
           SELECT 'counted' AS by, * FROM (TABLE c EXCEPT TABLE v) only_counted UNION ALL \
           SELECT 'viewed', * FROM (TABLE v EXCEPT TABLE c) only_viewed) x"
    );
    let row = app.client().query_one(&differences, &[]).await.unwrap();
    assert_eq!(row.get::<_, Value>(0), json!([]));
}

/// The indexes that a statement's plan lacks, and the large tables that it reads from end to end.
async fn wrong_plan(
    app: &App,
    [name, parameters, expected]: [&str; 3],
    large: &[&str],
) -> Vec<String> {
    let (indexes, scanned) = plan(app, name, parameters).await;
    let unused = expected
        .split(' ')
        .filter(|index| !indexes.contains(*index))
        .map(|index| format!("{name} does not use {index} but {indexes:?}"));
    let scanned = large.iter().filter(|table| scanned.contains(**table));
    unused
        .chain(scanned.map(|table| format!("{name} reads all of {table}")))
        .collect()
}

/// The plan for these parameters, as an unnamed statement gets it.
async fn plan(app: &App, name: &str, parameters: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    plan_as("force_custom_plan", app, name, parameters).await
}

/// The plan that this `plan_cache_mode` gives.
async fn plan_as(
    mode: &str,
    app: &App,
    name: &str,
    parameters: &str,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let sql = query(name);
    // As the program gives them: not all can be told from the statement.
    let types = parameters_of(&sql);
    let types = if types.is_empty() {
        String::new()
    } else {
        format!("({})", types.join(", "))
    };
    let parameters = if types.is_empty() {
        String::new()
    } else {
        format!("({parameters})")
    };
    app.execute(&format!(
        "SET plan_cache_mode = {mode}; PREPARE q{types} AS {sql}\n"
    ))
    .await;
    let explained = app
        .client()
        .query_one(&format!("EXPLAIN (FORMAT JSON) EXECUTE q{parameters}"), &[])
        .await
        .unwrap_or_else(|error| panic!("{name}: {error:?}"));
    app.execute("DEALLOCATE q").await;
    let (mut indexes, mut scanned) = (BTreeSet::new(), BTreeSet::new());
    collect(&explained.get(0), &mut indexes, &mut scanned);
    (indexes, scanned)
}

/// A type as SQL names it.
fn array(name: &str) -> String {
    name.strip_prefix('_')
        .map_or(name.to_owned(), |element| format!("{element}[]"))
}

/// A call under way in round 1 of an instance, for the statements that record.
async fn claimed(bed: &Bed) -> i64 {
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app
        .execute(
            "UPDATE leafhopper.dispatch SET state = 'dispatching', tries = 1, round = 1, \
             instance = '00000000-0000-0000-0000-00000000000a', claimed_at = now(), first_claimed_at = now(), \
             alive_until = now()",
        )
        .await;
    id
}

/// Runs `sql/queries/NAME` with these values, and gives the outcome of its only row.
async fn outcome(app: &App, name: &str, parameters: &str) -> String {
    let sql = query(name);
    let statement = app.client().prepare(&sql).await.unwrap();
    let types: Vec<_> = statement
        .params()
        .iter()
        .map(Type::name)
        .map(array)
        .collect();
    app.execute(&format!("PREPARE q({}) AS {sql}\n", types.join(", ")))
        .await;
    let row = app
        .client()
        .query_one(&format!("EXECUTE q({parameters})"), &[])
        .await;
    app.execute("DEALLOCATE q").await;
    row.unwrap().get("outcome")
}

#[tokio::test]
async fn an_attempt_whose_recording_was_not_heard_of_is_recorded_once() {
    for (kind, reason, state) in [
        ("retry", "NULL", "pending"),
        ("doubt", "NULL", "in_doubt"),
        ("park", "no_probe", "parked"),
        ("failed", "rejected", "failed"),
    ] {
        let bed = Bed::new().await;
        let id = claimed(&bed).await;
        let class = match kind {
            "doubt" | "park" => "in_doubt",
            other => other,
        };
        let parameters = format!(
            "'00000000-0000-0000-0000-00000000000a', 'i', '{{{id}}}', '{{1}}', '{{leaf}}', '{{k}}', '{{1}}', \
             '{{{kind}}}', '{{1}}', '{{60}}', '{{false}}', '{{{reason}}}', '{{{class}}}', '{{500}}', '{{NULL}}', \
             '{{c}}', '{{1}}', '{{NULL}}'"
        );
        let first = outcome(&bed.app, "record_other.sql", &parameters).await;
        let before = bed.app.call(id).await;
        let second = outcome(&bed.app, "record_other.sql", &parameters).await;
        assert_eq!((first.as_str(), second.as_str()), (state, state));
        let after = bed.app.call(id).await;
        assert_eq!(after, before, "{kind}");
        assert_eq!(after["attempts"], 1, "{kind}");
        assert_eq!(bed.app.attempts(id).await.len(), 1, "{kind}");
    }
}

#[tokio::test]
async fn a_confirmation_whose_recording_was_not_heard_of_is_no_second_one() {
    let bed = Bed::new().await;
    let id = claimed(&bed).await;
    let parameters = |attempt: u32| {
        format!(
            "'{{{id}}}', '{{leaf}}', '{{k}}', '{{{attempt}}}', '{{201}}', '{{\"{{}}\"}}', '{{NULL}}', \
             '{{NULL}}', '{{false}}', '{{NULL}}', '{{1}}', 'i'"
        )
    };
    for _ in 0..2 {
        let recorded = outcome(&bed.app, "record_confirmed.sql", &parameters(1)).await;
        assert_eq!(recorded, "recorded");
        assert_eq!(bed.app.attempts(id).await, [] as [Value; 0]);
    }
    // Another attempt's is.
    let again = outcome(&bed.app, "record_confirmed.sql", &parameters(2)).await;
    assert_eq!(again, "again");
    assert_eq!(
        bed.app.attempts(id).await[0]["class"],
        json!("confirmed_again")
    );
}
