//! An app's open transaction that has called one of the functions never stops the sidecar from recording other
//! calls; and neither of them makes the other fail.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use crate::harness::{
    Bed,
    app::{App, keyed},
    leaf::Gate,
    wait::until,
};

/// Fifty calls, confirmed soon.
async fn fifty_others_are_prompt(app: &App, leaf: &str, round: &str) {
    let started = Instant::now();
    app.execute(&format!(
        "INSERT INTO leafhopper.outbox (leaf, key, path, body) \
         SELECT '{leaf}', '{round} ' || n, '/things', jsonb_build_object('key', '{round} ' || n) \
           FROM generate_series(1, 50) AS n"
    ))
    .await;
    until("50 other calls are confirmed", async || {
        let count = format!("SELECT count(*) FROM leafhopper.result WHERE key LIKE '{round} %'");
        match app.rows(&count).await.remove(0) {
            row if row["count"] == 50 => Ok(()),
            row => Err(row),
        }
    })
    .await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{round}: {took:?}");
}

#[tokio::test]
async fn an_open_transaction_of_an_app_holds_up_only_the_calls_it_speaks_of() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    for key in ["in flight", "cancelled", "reset"] {
        let on = bed.leaf.on("/things").key(key);
        let on = on.waits_before_the_answer(&gate);
        if key == "reset" {
            on.resets()
        } else {
            on.answers(201)
        }
    }
    let config = bed.config("concurrency = 60");
    let _sidecars = [config.start().await, config.start().await];
    let app = App::connect(&bed.database.url).await;
    let flight = app.insert(keyed("leaf", "in flight")).await;
    let cancelled = app.insert(keyed("leaf", "cancelled")).await;
    let reset = app.insert(keyed("leaf", "reset")).await;
    gate.until_arrived(3).await;
    let later = app
        .insert(keyed("leaf", "later").set("not_before", "2100-01-01"))
        .await;

    let open = App::connect(&bed.database.url).await;
    open.execute(&format!(
        "BEGIN; \
         SELECT leafhopper.confirm('leaf', 'in flight', 200); \
         SELECT leafhopper.confirm('leaf', 'reset', 200); \
         SELECT leafhopper.confirm('leaf', 'new ' || n, 200) FROM generate_series(1, 6) AS n; \
         SELECT leafhopper.cancel({cancelled}, 'stop'); \
         SELECT leafhopper.cancel({later}, 'stop')"
    ))
    .await;
    fifty_others_are_prompt(&bed.app, "leaf", "before the answer").await;
    // Their answers can't be recorded yet; nor can those of calls that appear now and whose keys the open
    // transaction speaks of.
    gate.open();
    let mut answered = vec![flight, cancelled, reset];
    for n in 1..=6 {
        let key = format!("new {n}");
        answered.push(bed.app.insert(keyed("leaf", &key)).await);
        bed.leaf.until_requests(&key, 1).await;
    }
    fifty_others_are_prompt(&bed.app, "leaf", "after the answer").await;
    for id in &answered {
        assert_eq!(bed.app.state(*id).await, "dispatching");
    }

    open.execute("COMMIT").await;
    for id in answered {
        bed.app.until_state(id, "confirmed").await;
    }
    bed.app.until_state(later, "cancelled").await;
    for (key, source) in [
        ("in flight", "application"),
        ("reset", "application"),
        ("new 1", "application"),
        ("new 6", "application"),
        ("cancelled", "response"),
    ] {
        let results = bed.app.results("leaf", key).await;
        assert_eq!(results.len(), 1, "{key}");
        assert_eq!(results[0]["source"], source, "{key}");
        assert_eq!(bed.leaf.requests(key).len(), 1, "{key}");
    }
}

#[tokio::test]
async fn an_open_transaction_that_rolls_back_has_said_nothing() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .on("/things")
        .key("k")
        .waits_before_the_answer(&gate)
        .answers(201);
    let _sidecar = bed.sidecar("").await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    gate.until_arrived(1).await;
    let open = App::connect(&bed.database.url).await;
    open.execute("BEGIN; SELECT leafhopper.confirm('leaf', 'k', 200)")
        .await;
    gate.open();
    fifty_others_are_prompt(&bed.app, "leaf", "others").await;
    open.execute("ROLLBACK").await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.app.results("leaf", "k").await[0]["source"], "response");
    assert!(bed.app.attempts(id).await.is_empty());
}

#[tokio::test]
async fn functions_and_the_sidecar_do_not_deadlock() {
    let bed = Bed::new().await;
    // A word for a call in flight makes the next generation wait until nothing of that flight can arrive.
    let lines = "concurrency = 8\ntimeout = \"1s\"";
    let config = bed.config(lines).probe("leaf", "settle = \"100ms\"");
    let _sidecar = config.start().await;
    let said = async |app: App, turn: usize| {
        let mut unexpected = BTreeSet::new();
        for n in 0..40 {
            let id = app.insert(keyed("leaf", &format!("k{}", n % 7))).await;
            let sql = match (n + turn) % 3 {
                0 => format!("SELECT leafhopper.confirm('leaf', 'k{}', 200)", n % 7),
                1 => format!("SELECT leafhopper.cancel({id}, 'r')"),
                _ => format!("SELECT leafhopper.forget('leaf', 'k{}')", n % 7),
            };
            if let Err(error) = app.client().batch_execute(&sql).await {
                let code = error.code().unwrap().code().to_owned();
                // Refusals: in use, not in a state for it, nothing there.
                if !["55006", "55000", "P0002"].contains(&code.as_str()) {
                    unexpected.insert(format!("{sql}: {error:?}"));
                }
            }
        }
        unexpected
    };
    let (one, two, three) = tokio::join!(
        async { said(App::connect(&bed.database.url).await, 0).await },
        async { said(App::connect(&bed.database.url).await, 1).await },
        async { said(App::connect(&bed.database.url).await, 2).await },
    );
    let unexpected: BTreeSet<_> = one.into_iter().chain(two).chain(three).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    until("all calls have ended", async || {
        let left = "SELECT id, state, reason FROM leafhopper.call WHERE finished_at IS NULL";
        match bed.app.rows(left).await {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })
    .await;
}

/// Waits until that session waits for this one.
async fn until_waits_for(bed: &Bed, waiting: i32, on: i32) {
    until(&format!("session {waiting} waits for {on}"), async || {
        let blockers = format!("SELECT pg_blocking_pids({waiting}) AS pids");
        match bed.app.rows(&blockers).await.remove(0) {
            row if row["pids"] == serde_json::json!([on]) => Ok(()),
            row => Err(row),
        }
    })
    .await;
}

/// The word of an app is on its way as another call of the key comes in, and that one is cancelled before the
/// word reaches it: the call ends once.
#[tokio::test]
async fn a_word_for_a_call_that_is_being_cancelled_leaves_it_one_end() {
    let bed = Bed::new().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let app = App::connect(&bed.database.url).await;
        let pid = app.client().query_one("SELECT pg_backend_pid()", &[]).await;
        sessions.push((app, pid.unwrap().get::<_, i32>(0)));
    }
    let [word, cancel, lock, other] = &sessions[..] else {
        unreachable!("four were made")
    };
    let old = bed.app.insert(keyed("leaf", "k")).await;
    // Held up at its first step, where it has not seen the new call.
    lock.0
        .execute(&format!(
            "BEGIN; SELECT FROM leafhopper.dispatch WHERE call_id = {old} FOR UPDATE"
        ))
        .await;
    let says = word
        .0
        .execute("SELECT leafhopper.confirm('leaf', 'k', 200)");
    let others = async {
        until_waits_for(&bed, word.1, lock.1).await;
        let new = bed.app.insert(keyed("leaf", "k")).await;
        // Held up where it has chosen the new call for its result.
        other
            .0
            .execute(
                "BEGIN; INSERT INTO leafhopper.result (leaf, key, generation, attempts, status, source) \
                 VALUES ('leaf', 'k', 1, 0, 200, 'application')",
            )
            .await;
        lock.0.execute("ROLLBACK").await;
        until_waits_for(&bed, word.1, other.1).await;
        cancel
            .0
            .execute(&format!(
                "BEGIN; SELECT leafhopper.cancel({new}, 'no longer wanted')"
            ))
            .await;
        other.0.execute("ROLLBACK").await;
        until_waits_for(&bed, word.1, cancel.1).await;
        cancel.0.execute("COMMIT").await;
        new
    };
    let ((), new) = tokio::join!(says, others);
    for id in [old, new] {
        assert_eq!(bed.app.state(id).await, "confirmed");
    }
}

#[tokio::test]
async fn what_keeps_an_answer_from_being_recorded_is_said() {
    let bed = Bed::new().await;
    let (sidecar, gate) = bed.with_its_place_taken().await;
    let open = App::connect(&bed.database.url).await;
    open.execute("BEGIN; SELECT FROM leafhopper.dispatch FOR UPDATE")
        .await;
    gate.open();
    sidecar.until_log("another transaction holds its row").await;
    open.execute("COMMIT").await;
    bed.app.until_all_confirmed(1).await;
    bed.leaf.assert_each_effect_once(["first"]);
}
