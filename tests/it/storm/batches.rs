//! What must be true of the storm's batches when it is over.

use std::collections::HashMap;

use serde_json::Value;

use super::World;
use crate::harness::{app::App, leaf::Request};

/// Live calls that wait for somebody's word, and those that wait for their effect.
const WAITS_FOR_A_PERSON: &str = "waits AS (
    SELECT d.call_id, d.batch_id FROM leafhopper.dispatch d
     WHERE EXISTS (SELECT FROM leafhopper.dispatch p
                    WHERE p.leaf = d.leaf AND p.key = d.key AND p.state = 'parked')
     UNION
    -- Its effect is about to be undone, by a batch that waits for a person: for what else, that batch is asked itself.
    SELECT c.id, c.batch_id FROM leafhopper.call c JOIN leafhopper.result r ON r.call_id = c.waits_for
      JOIN leafhopper.batch b ON b.id = r.batch_id AND b.state IN ('cancelling', 'compensating')
     WHERE c.state = 'pending')";

/// Batches that are at their end by no means, and don't show what they wait for.
const FORGOTTEN: &str = "
    SELECT o.batch_id, b.state, b.sealed, b.changed_at, b.last_phase_at, count(*) AS calls
      FROM leafhopper.outbox o LEFT JOIN leafhopper.batch b ON b.id = o.batch_id
     WHERE o.batch_id IS NOT NULL AND b.finished_at IS NULL
       AND NOT EXISTS (SELECT FROM waits w WHERE w.batch_id = o.batch_id)
     GROUP BY 1, 2, 3, 4, 5";

/// What is not yet at its end, and waits for nobody's word: calls, batches, and batches that are to be looked at. In one
/// statement: what is done leaves one of these for another.
pub(super) fn under_way() -> String {
    format!(
        "WITH {WAITS_FOR_A_PERSON}, live AS (
             SELECT leaf, state, held, reason, count(*) FROM leafhopper.dispatch d
              WHERE call_id NOT IN (SELECT call_id FROM waits)
                AND NOT (held IS NOT DISTINCT FROM 'batch'
                         AND EXISTS (SELECT FROM waits w WHERE w.batch_id = d.batch_id))
              GROUP BY 1, 2, 3, 4),
         forgotten AS ({FORGOTTEN})
         SELECT to_jsonb(l) AS what FROM live l
          UNION ALL SELECT to_jsonb(f) FROM forgotten f
          UNION ALL SELECT to_jsonb(m) FROM leafhopper.batch_mark m"
    )
}

/// What the tables say that they must not.
const WRONG: [(&str, &str); 7] = [
    (
        "its teardown is over, and an effect of it stands",
        "SELECT b.id, r.key FROM leafhopper.batch b JOIN leafhopper.result r ON r.batch_id = b.id
           JOIN leafhopper.outbox o ON o.id = r.call_id
          WHERE b.state = 'cancelled' AND r.undone_at IS NULL AND o.run_when = 'ready' AND o.undoes IS NULL",
    ),
    (
        "it has succeeded, and an effect of it was undone",
        "SELECT b.id, r.key FROM leafhopper.batch b JOIN leafhopper.result r ON r.batch_id = b.id
          WHERE b.state IN ('succeeded', 'finished') AND r.undone_at IS NOT NULL",
    ),
    (
        "it has succeeded, and not all of it is confirmed",
        "SELECT b.id, c.key, c.state FROM leafhopper.batch b JOIN leafhopper.call c ON c.batch_id = b.id
          WHERE b.state = 'succeeded' AND c.run_when = 'ready' AND c.state <> 'confirmed'
            AND c.reason IS DISTINCT FROM 'batch_finished'
            AND NOT EXISTS (SELECT FROM leafhopper.batch x WHERE x.id = b.id AND x.allow_failures)",
    ),
    (
        "a follow-up ran that was not for such an end",
        "SELECT b.id, c.key, c.state FROM leafhopper.batch b JOIN leafhopper.call c ON c.batch_id = b.id
          WHERE c.undoes IS NULL AND c.state NOT IN ('cancelled', 'pending')
            AND (c.run_when = 'batch_succeeded' AND b.state <> 'succeeded'
                 OR c.run_when = 'batch_failed' AND b.state IN ('succeeded', 'finished'))",
    ),
    (
        "a call of it ended after its teardown had begun",
        "SELECT r.batch_id, r.key, r.confirmed_at FROM leafhopper.result r JOIN leafhopper.outbox o ON o.id = r.call_id
          WHERE o.run_when = 'ready' AND r.source <> 'application'
            AND EXISTS (SELECT FROM leafhopper.outbox c
                         WHERE c.batch_id = r.batch_id AND c.undoes IS NOT NULL AND c.created_at < r.confirmed_at)",
    ),
    (
        "a follow-up ended before a phase that goes first",
        "SELECT r.batch_id, r.key, f.key AS follow_up
           FROM leafhopper.result f JOIN leafhopper.outbox o ON o.id = f.call_id
           JOIN leafhopper.result r ON r.batch_id = f.batch_id AND r.confirmed_at > f.confirmed_at
           JOIN leafhopper.outbox x ON x.id = r.call_id
          WHERE o.undoes IS NULL AND o.run_when <> 'ready'
            AND (x.run_when = 'ready' OR x.undoes IS NOT NULL OR o.run_when = 'batch_settled' AND x.run_when <> 'batch_settled')
            -- Somebody's word may take a batch back to its teardown.
            AND NOT EXISTS (SELECT FROM leafhopper.result w WHERE w.batch_id = f.batch_id AND w.source = 'application')",
    ),
    (
        "an effect was undone by more or less than one compensation",
        "SELECT r.key, r.generation FROM leafhopper.result r
          WHERE r.key !~ ':undo:' AND (r.undone_at IS NOT NULL)::int <> (
                SELECT count(*) FROM leafhopper.result u
                 WHERE u.leaf = r.leaf AND u.key = r.key || ':undo:' || r.generation)",
    ),
];

pub(super) async fn broken(world: &World, app: &App) -> Vec<String> {
    let mut wrong = Vec::new();
    for (what, sql) in WRONG {
        let rows = app.rows(sql).await;
        wrong.extend(rows.iter().map(|row| format!("{what}: {row}")));
    }
    let sql = format!("WITH {WAITS_FOR_A_PERSON} {FORGOTTEN}");
    let forgotten = app.rows(&sql).await;
    wrong.extend(forgotten.iter().map(|row| format!("forgotten: {row}")));
    let requests = world.leaf.all_requests();
    let mut of_batch: HashMap<String, Vec<&Request>> = HashMap::new();
    for request in requests.iter().filter(|request| request.method != "GET") {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Some(batch) = body["batch"].as_str() {
            of_batch.entry(batch.to_owned()).or_default().push(request);
        }
    }
    for (batch, requests) in of_batch {
        wrong.extend(out_of_turn(&requests).map(|why| format!("batch {batch}: {why}")));
    }
    wrong
}

/// What was executed after the batch's teardown had begun, or after its follow-ups had. A PUT whose request was given
/// up may arrive at any time.
fn out_of_turn<'a>(requests: &'a [&Request]) -> impl Iterator<Item = String> + 'a {
    let is_of = |request: &Request, phase: &str| {
        request.method != "DELETE" && request.json()["phase"] == phase
    };
    let ends = |request: &Request| {
        request.method == "DELETE"
            || is_of(request, "batch_failed")
            || is_of(request, "batch_settled")
    };
    let first = requests
        .iter()
        .find(|request| ends(request))
        .map(|request| request.number);
    let late = requests.iter().filter(move |request| {
        is_of(request, "ready")
            && request.executed
            && request.method != "PUT"
            && first.is_some_and(|first| request.number > first)
    });
    late.map(|late| format!("{} came after the teardown had begun", late.key))
}

/// How they have ended, and what was undone; a storm in which that is nothing shows nothing.
pub(super) async fn tally(app: &App) -> String {
    let sql = "WITH of_calls AS (
             SELECT DISTINCT o.batch_id AS id FROM leafhopper.outbox o WHERE o.batch_id IS NOT NULL)
         SELECT CASE WHEN b.finished_at IS NOT NULL THEN b.state ELSE coalesce(b.state, 'open') || ', waits' END AS state,
                count(*) FROM of_calls c LEFT JOIN leafhopper.batch b USING (id) GROUP BY 1 ORDER BY 1";
    let states = app.rows(sql).await;
    let ends: Vec<_> = states
        .iter()
        .map(|row| format!("{} {}", row["state"].as_str().unwrap(), row["count"]))
        .collect();
    for state in ["succeeded", "cancelled", "finished"] {
        assert!(
            states.iter().any(|row| row["state"] == state),
            "no batch is {state}: {ends:?}"
        );
    }
    let sql = "SELECT count(*) AS undone, count(*) FILTER (WHERE source = 'adopted') AS adopted
                 FROM leafhopper.result WHERE key ~ ':undo:[0-9]+$'";
    let undone = app.rows(sql).await.remove(0);
    assert!(
        undone["undone"].as_u64().unwrap() > 0,
        "nothing was undone: {ends:?}"
    );
    format!(
        "{}; undone {}, of which found so {}",
        ends.join(", "),
        undone["undone"],
        undone["adopted"]
    )
}
