//! Faults of batches that were found elsewhere (D and E of the list that this began with): a batch ends once, however
//! its calls end.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{UNDOES, calls, row, seal, thing, undone, unsealed, until_batch, until_finished};
use crate::harness::{
    Bed,
    app::App,
    leaf::Gate,
    wait::{holds_for, until},
};

/// Writes down each state that a batch comes to.
const WATCH: &str = "
    CREATE TABLE public.moves (id bigint GENERATED ALWAYS AS IDENTITY, batch uuid, state text);
    CREATE FUNCTION public.watch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF TG_OP = 'INSERT' OR NEW.state <> OLD.state THEN
            INSERT INTO public.moves (batch, state) VALUES (NEW.id, NEW.state);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER watch AFTER INSERT OR UPDATE ON leafhopper.batch FOR EACH ROW EXECUTE FUNCTION public.watch();";

async fn moves(app: &App, batch: Uuid) -> Vec<String> {
    let sql = format!("SELECT state FROM public.moves WHERE batch = '{batch}' ORDER BY id");
    let rows = app.rows(&sql).await;
    rows.iter()
        .map(|row| row["state"].as_str().unwrap().to_owned())
        .collect()
}

async fn soon(app: &App, milliseconds: u32) -> Value {
    let sql = format!("SELECT clock_timestamp() + interval '{milliseconds} milliseconds' AS at");
    app.rows(&sql).await[0]["at"].clone()
}

/// D02, D07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_every_call_fails_the_batch_is_torn_down_once_fifty_times() {
    let bed = Bed::new().await;
    bed.app.execute(WATCH).await;
    bed.leaf.on("/fails").refuses(404);
    let config = bed.config(&UNDOES.replace("concurrency = 8", "concurrency = 10"));
    let mut sidecars = Vec::new();
    for _ in 0..4 {
        sidecars.push(config.start().await);
    }
    for _round in 0..10 {
        let batches: [Uuid; 5] = std::array::from_fn(|_| Uuid::new_v4());
        for batch in batches {
            bed.app
                .execute(&format!(
                    "BEGIN; INSERT INTO leafhopper.outbox (leaf, path, batch_id)
                     SELECT 'leaf', '/fails', '{batch}' FROM generate_series(1, 40);
                     INSERT INTO leafhopper.outbox (leaf, path, body, batch_id, run_when)
                     SELECT 'leaf', '/things', jsonb_build_object('key', phase || ' {batch}'), '{batch}', phase
                       FROM unnest(ARRAY['batch_succeeded', 'batch_failed', 'batch_settled']) AS phase; COMMIT"
                ))
                .await;
        }
        for batch in batches {
            until_finished(&bed.app, batch, "cancelled").await;
            let moves = moves(&bed.app, batch).await;
            assert_eq!(moves, ["cancelling", "compensating", "cancelled"]);
            let sent = |phase: &str| bed.leaf.requests(&format!("{phase} {batch}")).len();
            let sent = ["batch_succeeded", "batch_failed", "batch_settled"].map(sent);
            assert_eq!(sent, [0, 1, 1]);
        }
    }
}

/// D07: twenty calls that end within a moment, over two instances that could each take them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_calls_end_at_once_the_batch_ends_once() {
    let bed = Bed::new().await;
    bed.app.execute(WATCH).await;
    let config = bed.config(&UNDOES.replace("concurrency = 8", "concurrency = 25"));
    let _one = config.start().await;
    let _two = config.start().await;
    for round in 0..6 {
        let fails = round % 2 == 1;
        let gate = Gate::closed();
        let batch = Uuid::new_v4();
        bed.app.execute("BEGIN").await;
        let mut keys = Vec::new();
        for number in 0..20 {
            let key = format!("{round}-{number}");
            let on = bed.leaf.always().key(&key).method("POST");
            let on = on.waits_before_the_effect(&gate);
            if fails && number == 7 {
                on.refuses(422);
            } else {
                on.answers(201);
                keys.push(key.clone());
            }
            bed.app.insert(thing(&key).batch(batch)).await;
        }
        let last = format!("last-{round}");
        let follow_up = thing(&last).batch(batch).set("run_when", "batch_settled");
        bed.app.insert(follow_up).await;
        bed.app.execute("COMMIT").await;
        gate.until_arrived(20).await;
        gate.open();
        let (end, way): (&str, &[&str]) = if fails {
            ("cancelled", &["cancelling", "compensating", "cancelled"])
        } else {
            ("succeeded", &["closing", "succeeded"])
        };
        until_finished(&bed.app, batch, end).await;
        assert_eq!(moves(&bed.app, batch).await, way);
        assert_eq!(bed.leaf.requests(&last).len(), 1);
        bed.leaf.assert_each_effect_once(&keys);
        let undone = undone(&bed.leaf);
        for key in &keys {
            let times = undone.iter().filter(|undone| *undone == key).count();
            assert_eq!(times, usize::from(fails), "{key}");
        }
    }
}

/// D04: the first calls are confirmed before the app has committed the last ones.
#[tokio::test]
async fn a_batch_of_two_transactions_ends_when_it_is_sealed_and_all_its_calls_are_final() {
    let bed = Bed::new().await;
    bed.app.execute(WATCH).await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("b")
        .waits_before_the_effect(&gate)
        .answers(201);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let follow_up = thing("then")
        .batch(batch)
        .set("run_when", "batch_succeeded");
    bed.app.insert(follow_up).await;
    let app = App::connect(&bed.database.url).await;
    app.execute("BEGIN").await;
    app.insert(thing("b").batch(batch)).await;
    let first = bed.app.insert(thing("a").batch(batch)).await;
    bed.app.until_state(first, "confirmed").await;
    until("all that is known of it has ended", async || {
        let row = row(&bed.app, batch).await;
        if row["idle_since"].is_null() {
            Err(row)
        } else {
            Ok(())
        }
    })
    .await;
    seal(&app, batch).await;
    app.execute("COMMIT").await;
    gate.until_arrived(1).await;
    holds_for(Duration::from_millis(300), "it is open", async || {
        let row = row(&bed.app, batch).await;
        if row["state"] == "open" && bed.leaf.requests("then").is_empty() {
            Ok(())
        } else {
            Err(row)
        }
    })
    .await;
    gate.open();
    until_finished(&bed.app, batch, "succeeded").await;
    assert_eq!(
        moves(&bed.app, batch).await,
        ["open", "closing", "succeeded"]
    );
    bed.leaf.assert_each_effect_once(["a", "b", "then"]);
}

/// D05, D08.
#[tokio::test]
async fn success_comes_after_the_last_retry_and_once() {
    let bed = Bed::new().await;
    bed.app.execute(WATCH).await;
    let keys: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    for key in &keys[..3] {
        bed.leaf.always().key(key).times(2).refuses(429);
    }
    let batch = Uuid::new_v4();
    bed.app.execute("BEGIN").await;
    let follow_up = thing("then")
        .batch(batch)
        .set("run_when", "batch_succeeded");
    bed.app.insert(follow_up).await;
    for key in &keys {
        bed.app.insert(thing(key).batch(batch)).await;
    }
    bed.app.execute("COMMIT").await;
    let _one = bed.sidecar(UNDOES).await;
    let _two = bed.sidecar(UNDOES).await;
    until_finished(&bed.app, batch, "succeeded").await;
    assert_eq!(moves(&bed.app, batch).await, ["closing", "succeeded"]);
    bed.leaf.assert_each_effect_once(&keys);
    let requests = bed.leaf.all_requests();
    assert_eq!(requests.len(), 10 + 3 * 2 + 1);
    assert_eq!(requests.last().unwrap().key, "then");
}

/// D11: what is cancelled frees its slots and its place in the order, when it ends.
#[tokio::test]
async fn cancelled_calls_free_their_slots_and_let_their_successors_go() {
    let bed = Bed::new().await;
    let lines = UNDOES.replace("concurrency = 8", "concurrency = 2");
    let config = bed.config(&lines).probe("leaf", "settle = \"50ms\"");
    let _sidecar = config.start().await;
    // Neither has an effect: one is told so, the other finds out.
    bed.leaf
        .always()
        .key("hangs")
        .method("POST")
        .does_nothing()
        .hangs();
    let gate = Gate::closed();
    let told = bed.leaf.always().key("told").method("POST");
    told.waits_before_the_effect(&gate).refuses(429);
    let batch = Uuid::new_v4();
    bed.app.execute("BEGIN").await;
    for (key, timeout) in [("hangs", Some("3 s")), ("told", None)] {
        let first = thing(key).batch(batch).set("ordering_key", key);
        bed.app.insert(first.set("timeout", timeout)).await;
    }
    bed.app.execute("COMMIT").await;
    gate.until_arrived(1).await;
    bed.leaf.until_requests("hangs", 1).await;
    let mut successors = Vec::new();
    for key in ["hangs", "told"] {
        let next = thing(&format!("after-{key}")).set("ordering_key", key);
        successors.push(bed.app.insert(next).await);
    }
    let word = format!("SELECT leafhopper.cancel_batch('{batch}', 'withdrawn')");
    bed.app.execute(&word).await;
    gate.open();
    for id in successors {
        bed.app.until_state(id, "confirmed").await;
    }
    until_finished(&bed.app, batch, "cancelled").await;
    let ends = calls(&bed.app, batch).await;
    assert!(
        ends.iter().all(|call| call.contains("cancelled")),
        "{ends:?}"
    );
    assert_eq!(bed.leaf.requests("told").len(), 1);
}

/// E01.
#[tokio::test]
async fn a_leaf_that_hangs_past_the_deadline_holds_the_teardown_visibly_until_somebody_decides() {
    // Their databases go after both: to drop one blocks this thread.
    let _beds = tokio::join!(
        hangs_past_its_deadline(true),
        hangs_past_its_deadline(false)
    );
}

async fn hangs_past_its_deadline(executed: bool) -> Bed {
    let bed = Bed::new().await;
    let wedged = bed.leaf.always().key("wedged").method("POST");
    if executed {
        wedged.hangs();
    } else {
        wedged.does_nothing().hangs();
    }
    let probe = bed.leaf.always().key("wedged").method("GET");
    probe.does_nothing().answers(500);
    bed.leaf.always().key("bad").refuses(422);
    let config = bed
        .config(UNDOES)
        .probe("leaf", "settle = \"50ms\"\nmax_probes = 3");
    let _sidecar = config.start().await;
    let batch = unsealed(&bed.app).await;
    let done = bed.app.insert(thing("done").batch(batch)).await;
    bed.app.until_state(done, "confirmed").await;
    let deadline = soon(&bed.app, 5000).await;
    let wedged = thing("wedged")
        .batch(batch)
        .set("timeout", "5 s")
        .set("deadline", deadline);
    let wedged = bed.app.insert(wedged).await;
    bed.leaf.until_requests("wedged", 1).await;
    bed.app.insert(thing("bad").batch(batch)).await;
    let parked = bed.app.until_state(wedged, "parked").await;
    assert_eq!(
        (&parked["reason"], &parked["stuck"]),
        (&json!("probe_unclear"), &json!(true))
    );
    until_batch(&bed.app, batch, "cancelling").await;
    let asked = bed.leaf.requests("wedged").len();
    assert_eq!(
        asked,
        1 + 3,
        "one attempt, and as many probes as are allowed"
    );
    holds_for(Duration::from_millis(500), "it waits", async || {
        let state = row(&bed.app, batch).await["state"].clone();
        let asked_again = bed.leaf.requests("wedged").len() != asked;
        if state == "cancelling" && undone(&bed.leaf).is_empty() && !asked_again {
            Ok(())
        } else {
            Err((state, bed.leaf.all_requests()))
        }
    })
    .await;
    until("its deadline has passed", async || {
        let passed = "SELECT deadline < clock_timestamp() AS passed FROM leafhopper.outbox";
        let passed = bed.app.rows(&format!("{passed} WHERE id = {wedged}")).await;
        if passed == [json!({ "passed": true })] {
            Ok(())
        } else {
            Err(passed)
        }
    })
    .await;
    let (word, order): (_, &[&str]) = if executed {
        (
            "SELECT leafhopper.confirm('leaf', 'wedged', 201)".to_owned(),
            &["wedged", "done"],
        )
    } else {
        (
            format!("SELECT leafhopper.resolve_not_executed({wedged}, 'I have looked')"),
            &["done"],
        )
    };
    bed.app.execute(&word).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), order);
    let end = bed.app.state(wedged).await;
    assert_eq!(end, if executed { "confirmed" } else { "expired" });
    bed
}

/// E02.
#[tokio::test]
async fn a_host_that_does_not_resolve_fails_the_batch_when_the_time_is_over() {
    for by_deadline in [true, false] {
        let bed = Bed::new().await;
        let give_up = if by_deadline {
            ""
        } else {
            ", give_up_after = \"600ms\""
        };
        let lines = format!("retry = {{ initial = \"20ms\", max = \"50ms\"{give_up} }}");
        let config = bed
            .config(UNDOES)
            .leaf("kiln", "http://kiln.invalid", &lines);
        let _sidecar = config.start().await;
        let batch = unsealed(&bed.app).await;
        let shelf = bed.app.insert(thing("shelf").batch(batch)).await;
        bed.app.until_state(shelf, "confirmed").await;
        let mut kiln = thing("kiln").set("leaf", "kiln").batch(batch);
        if by_deadline {
            kiln = kiln.set("deadline", soon(&bed.app, 600).await);
        }
        let kiln = bed.app.insert(kiln).await;
        let end = if by_deadline { "expired" } else { "failed" };
        bed.app.until_state(kiln, end).await;
        until_finished(&bed.app, batch, "cancelled").await;
        assert_eq!(undone(&bed.leaf), ["shelf"]);
        assert_eq!(bed.leaf.standing("shelf"), 0);
        assert!(
            bed.app
                .attempts(kiln)
                .await
                .iter()
                .all(|attempt| attempt["status"].is_null())
        );
    }
}

/// E03, E04: what undoes is tried again, and the rest of the sequence follows it in its order.
#[tokio::test]
async fn a_compensation_that_is_refused_for_now_is_repeated_before_the_older_ones() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .key("c")
        .method("DELETE")
        .times(3)
        .refuses(429);
    bed.leaf.always().key("b").method("DELETE").refuses(404);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    for key in ["a", "b", "c"] {
        let id = bed.app.insert(thing(key).batch(batch)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    let word = format!("SELECT leafhopper.cancel_batch('{batch}', 'withdrawn')");
    bed.app.execute(&word).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["c", "c", "c", "c", "b", "a"]);
}
