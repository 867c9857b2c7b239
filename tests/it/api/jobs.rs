//! Actions on many calls: jobs that go on by themselves.

use std::time::Duration;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::Client;
use crate::harness::{
    Bed,
    app::keyed,
    sidecar::Sidecar,
    wait::{holds_for, until},
};

/// Calls that failed while nobody was there, as an outage leaves them.
async fn failed(bed: &Bed, calls: u32) {
    bed.app
        .execute(&format!(
            "WITH row AS (INSERT INTO leafhopper.outbox (leaf, key, path, body) \
                          SELECT 'leaf', 'k' || n, '/things', jsonb_build_object('key', 'k' || n) \
                            FROM generate_series(1, {calls}) n RETURNING id) \
             INSERT INTO leafhopper.finished (call_id, state, reason, attempts) \
             SELECT id, 'failed', 'gave_up', 20 FROM row; \
             DELETE FROM leafhopper.dispatch"
        ))
        .await;
}

async fn until_state(client: &Client<'_>, job: i64, state: &str) -> Value {
    until(&format!("job {job} is {state}"), async || {
        let shown = client.get(&format!("/api/v1/jobs/{job}")).await.expect(200);
        if shown["state"] == state {
            Ok(shown)
        } else {
            Err(shown)
        }
    })
    .await
}

async fn number(bed: &Bed, sql: &str) -> i64 {
    bed.app.client().query_one(sql, &[]).await.unwrap().get(0)
}

/// Fault N04: without a command for many calls people edit the tables by hand.
#[tokio::test]
async fn three_thousand_failed_calls_are_sent_again_spread_in_time() {
    let bed = Bed::new().await;
    failed(&bed, 3000).await;
    bed.app
        .execute("UPDATE leafhopper.finished SET reason = 'rejected' WHERE call_id % 3 = 0")
        .await;
    let sidecar = bed.sidecar("concurrency = 64").await;
    let client = Client::new(&sidecar);
    let filter = json!({ "leaf": "leaf", "reason": "gave_up" });
    let body = |more: Value| {
        let mut body =
            json!({ "filter": filter, "reason": "their outage is over", "actor": "ada" });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    let retry = "/api/v1/calls/retry";
    let dry = client
        .post(retry, &body(json!({ "dry_run": true })))
        .await
        .expect(200);
    assert_eq!(
        (&dry["matched"], &dry["complete"]),
        (&json!(2000), &json!(true))
    );
    assert_eq!(
        dry["calls"].as_array().unwrap()[..3],
        [json!(1), json!(2), json!(4)]
    );
    client
        .post(retry, &body(json!({ "expect_count": 3000 })))
        .await
        .expect(409);
    let none = "SELECT count(*) FROM leafhopper.operator_action";
    assert_eq!(number(&bed, none).await, 0, "nothing is changed");

    let spread = json!({ "expect_count": 2000, "spread": "1h" });
    let answer = client.post(retry, &body(spread)).await;
    let location = answer.header("location").to_owned();
    let job = answer.expect(202);
    let id = job["id"].as_i64().unwrap();
    assert_eq!(location, format!("/api/v1/jobs/{id}"));
    assert_eq!(
        (&job["matched"], &job["action"], &job["actor"]),
        (&json!(2000), &json!("retry"), &json!("ada"))
    );
    let done = until_state(&client, id, "done").await;
    assert_eq!((&done["done"], &done["refused"]), (&json!(2000), &json!(0)));

    // Who did it to each, once, and under which job.
    let kept = "SELECT count(DISTINCT call_id) FROM leafhopper.operator_action \
                 WHERE actor = 'ada' AND action = 'retry' AND reason = 'their outage is over' AND detail = '{\"job\": 1}'";
    assert_eq!(number(&bed, kept).await, 2000);
    // Evenly over the hour: of each quarter's 500, the number is within five deviations.
    let quarters = bed
        .app
        .rows(
            "SELECT width_bucket(extract(epoch FROM due_at - enqueued_at), 0, 3600, 4) AS quarter, count(*) AS calls \
               FROM leafhopper.dispatch WHERE due_at > now() GROUP BY 1 ORDER BY 1",
        )
        .await;
    assert_eq!(quarters.len(), 4, "{quarters:?}");
    for quarter in &quarters {
        let calls = quarter["calls"].as_i64().unwrap();
        assert!((400..600).contains(&calls), "{quarters:?}");
    }
    let others = "SELECT count(*) FROM leafhopper.finished WHERE reason = 'rejected'";
    assert_eq!(number(&bed, others).await, 1000);
    let list = client.get("/api/v1/jobs?limit=1").await.expect(200);
    assert_eq!(list["jobs"], json!([done]));
}

#[tokio::test]
async fn what_a_job_may_not_change_is_told_apart() {
    let bed = Bed::new().await;
    for key in ["a", "b"] {
        bed.leaf.always().key(key).resets();
    }
    let sidecar = bed.sidecar("in_doubt = \"park\"").await;
    let client = Client::new(&sidecar);
    let batch = uuid::Uuid::new_v4();
    let mut ids = Vec::new();
    for row in [keyed("leaf", "a").batch(batch), keyed("leaf", "b")] {
        let id = bed.app.insert(row).await;
        bed.app.until_state(id, "parked").await;
        ids.push(id);
    }
    // An app's transaction holds one of them.
    bed.app
        .execute(&format!(
            "BEGIN; SELECT FROM leafhopper.dispatch WHERE call_id = {} FOR UPDATE",
            ids[0]
        ))
        .await;
    let body = json!({
        "as": "confirmed", "status": 204, "filter": { "state": "parked" }, "reason": "they are there",
    });
    let job = client
        .post("/api/v1/calls/resolve", &body)
        .await
        .expect(202);
    let done = until_state(&client, job["id"].as_i64().unwrap(), "done").await;
    bed.app.execute("ROLLBACK").await;
    assert_eq!(
        (&done["done"], &done["refused"]),
        (&json!(1), &json!(1)),
        "{done}"
    );
    assert_eq!(done["refusals"][0]["id"], json!(ids[0]));
    let message = done["refusals"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("another transaction is in the way"),
        "{message}"
    );
    assert_eq!(bed.app.state(ids[0]).await, "parked");
    assert_eq!(bed.app.state(ids[1]).await, "confirmed");
    assert_eq!(bed.app.results("leaf", "b").await[0]["status"], json!(204));
}

/// Each statement of a step, before and after it, and its COMMIT.
const STEPS: [&str; 4] = [
    "work on a job: before",
    "work on a job: open",
    "work on a job: next",
    "work on a job: done",
];

#[tokio::test]
async fn what_a_crash_interrupts_goes_on_and_nothing_is_taken_twice() {
    let bed = Bed::new().await;
    failed(&bed, 250).await;
    bed.app
        .execute("INSERT INTO leafhopper.leaf_control (leaf, paused) VALUES ('leaf', true)")
        .await;
    let config = bed.config("").dispatch("lease = \"1s\"");
    let mut job = None;
    for step in STEPS {
        // At its second time, so that something was done before.
        let at = format!("work on a job: done > {step}");
        let mut dying = config
            .sidecar()
            .environment("LEAFHOPPER_CRASH_AT", &at)
            .launch();
        if job.is_none() {
            dying.until_ready().await;
            let body = json!({ "filter": { "leaf": "leaf" }, "reason": "a test" });
            let request = Client::new(&dying).request(Method::POST, "/api/v1/calls/retry");
            let request = request.header("content-type", "application/json");
            // It may die before it has answered.
            drop(request.body(body.to_string()).send().await);
            job = Some(number(&bed, "SELECT id FROM leafhopper.job").await);
        }
        dying.exit().await;
        let state = bed
            .app
            .rows("SELECT state, done, after_id FROM leafhopper.job")
            .await;
        assert_eq!(state[0]["state"], "running", "{step}: {state:?}");
        assert!(state[0]["done"].as_i64() < Some(250), "{step}: {state:?}");
        bed.app
            .execute("UPDATE leafhopper.job SET after_id = 0, done = 0")
            .await;
        reset(&bed).await;
    }
    // Left to another instance, while nobody asks it to.
    let other = config.start().await;
    let done = until_state(&Client::new(&other), job.unwrap(), "done").await;
    assert_eq!((&done["done"], &done["refused"]), (&json!(250), &json!(0)));
}

#[tokio::test]
async fn one_that_was_held_up_takes_nothing_that_another_has_taken() {
    let bed = Bed::new().await;
    failed(&bed, 250).await;
    let paused = "INSERT INTO leafhopper.leaf_control (leaf, paused) VALUES ('leaf', true)";
    bed.app.execute(paused).await;
    let config = bed.config("");
    // It has found the first hundred calls, and is about to take them.
    let freezing = config.sidecar();
    let freezing = freezing.environment("LEAFHOPPER_FREEZE_AT", "work on a job: before");
    let held_up = freezing.start().await;
    let body = json!({ "filter": { "leaf": "leaf" }, "reason": "a test" });
    let client = Client::new(&held_up);
    let begun = async { client.post("/api/v1/calls/retry", &body).await.expect(202) };
    let meanwhile = async {
        until("it is held up", async || {
            if held_up.is_stopped() {
                Ok(())
            } else {
                Err(())
            }
        })
        .await;
        let dying = config.sidecar();
        let dying = dying.environment("LEAFHOPPER_CRASH_AT", "work on a job: done");
        dying.launch().exit().await;
        let job = bed.app.rows("SELECT state, done FROM leafhopper.job").await;
        assert_eq!(job, [json!({ "state": "running", "done": 100 })]);
        held_up.signal(Signal::CONT);
    };
    let (job, ()) = tokio::join!(begun, meanwhile);
    let done = until_state(&client, job["id"].as_i64().unwrap(), "done").await;
    assert_eq!((&done["done"], &done["refused"]), (&json!(250), &json!(0)));
}

/// As it was when the job began.
async fn reset(bed: &Bed) {
    bed.app
        .execute(
            "DELETE FROM leafhopper.operator_action; \
             INSERT INTO leafhopper.finished (call_id, state, reason, attempts) \
             SELECT call_id, 'failed', 'gave_up', 20 FROM leafhopper.dispatch; \
             DELETE FROM leafhopper.dispatch",
        )
        .await;
}

#[tokio::test]
async fn two_instances_work_on_one_job_and_a_person_ends_it() {
    let bed = Bed::new().await;
    failed(&bed, 1500).await;
    bed.app
        .execute("INSERT INTO leafhopper.leaf_control (leaf, paused) VALUES ('leaf', true)")
        .await;
    let sidecars: [Sidecar; 2] = [bed.sidecar("").await, bed.sidecar("").await];
    let client = Client::new(&sidecars[0]);
    let body = json!({ "filter": { "leaf": "leaf" }, "reason": "a test" });
    let retried = client.post("/api/v1/calls/retry", &body).await.expect(202);
    let done = until_state(&client, retried["id"].as_i64().unwrap(), "done").await;
    assert_eq!(done["done"], json!(1500));

    // What is locked is waited for a little, so this one takes its time; what comes later is not meant.
    bed.app
        .execute("BEGIN; SELECT FROM leafhopper.dispatch WHERE call_id % 2 = 0 FOR UPDATE")
        .await;
    let job = client.post("/api/v1/calls/cancel", &body).await.expect(202);
    let path = format!("/api/v1/jobs/{}", job["id"]);
    let other = Client::new(&sidecars[1]);
    let end = json!({ "reason": "not all of them", "actor": "bob" });
    // The job's own step may be in the way for a moment.
    let ended = until("it is ended", async || {
        let answer = other.post(&format!("{path}/cancel"), &end).await;
        if answer.status == 409 {
            Err(answer)
        } else {
            Ok(answer.expect(200))
        }
    })
    .await;
    bed.app.execute("ROLLBACK").await;
    assert_eq!(ended["state"], "cancelled");
    assert!(ended["done"].as_i64() < Some(1500), "{ended}");
    other
        .post(&format!("{path}/cancel"), &end)
        .await
        .expect(409);
    other.post("/api/v1/jobs/99/cancel", &end).await.expect(404);
    holds_for(
        Duration::from_millis(300),
        "that it does nothing more",
        async || {
            let shown = client.get(&path).await.expect(200);
            if shown == ended { Ok(()) } else { Err(shown) }
        },
    )
    .await;
    let kept = "SELECT count(*) FROM leafhopper.operator_action \
                 WHERE action = 'cancel_job' AND actor = 'bob' AND detail ->> 'job' = '2'";
    assert_eq!(number(&bed, kept).await, 1);
}

#[tokio::test]
async fn heads_are_released_by_a_filter() {
    let bed = Bed::new().await;
    bed.leaf.always().nth(1).refuses(422);
    let sidecar = bed
        .sidecar("after_failed_head = \"hold\"\nconcurrency = 1")
        .await;
    let client = Client::new(&sidecar);
    let head = bed
        .app
        .insert(keyed("leaf", "head").set("ordering_key", "o"))
        .await;
    bed.app.until_state(head, "failed").await;
    let next = bed
        .app
        .insert(keyed("leaf", "next").set("ordering_key", "o"))
        .await;
    let body = json!({ "filter": { "leaf": "leaf" }, "reason": "a test" });
    let job = client
        .post("/api/v1/calls/release", &body)
        .await
        .expect(202);
    assert_eq!(job["matched"], json!(1));
    let done = until_state(&client, job["id"].as_i64().unwrap(), "done").await;
    assert_eq!(done["done"], json!(1));
    bed.app.until_state(next, "confirmed").await;
}

/// Else a step would read a whole backlog, and begin anew where it was interrupted.
#[tokio::test]
async fn a_job_gets_on_also_where_nothing_matches() {
    let bed = Bed::new().await;
    bed.app.insert(keyed("gone", "first")).await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.leaf_control (leaf, paused) VALUES ('leaf', true); \
             INSERT INTO leafhopper.outbox (leaf, key, path) \
             SELECT 'leaf', 'k' || n, '/things' FROM generate_series(2, 12000) n; \
             ANALYZE leafhopper.outbox, leafhopper.dispatch",
        )
        .await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    let body = json!({ "filter": { "reason": "leaf_unknown" }, "reason": "a test" });
    let job = client.post("/api/v1/calls/cancel", &body).await.expect(202);
    assert_eq!(job["matched"], json!(1));
    let done = until_state(&client, job["id"].as_i64().unwrap(), "done").await;
    assert_eq!(done["done"], json!(1));
    assert!(done["after_id"].as_i64() >= Some(10_000), "{done}");
}

/// While instances are replaced, a job may say more than the older of them can read.
#[tokio::test]
async fn a_job_that_is_not_understood_is_left_to_others_and_holds_no_other_up() {
    let bed = Bed::new().await;
    failed(&bed, 2).await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.job (action, filter, actor, reason, last_id) \
             VALUES ('retry', '{\"leaf\": \"leaf\", \"narrower\": \"k9\"}', 'ada', 'a test', 2)",
        )
        .await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    let body = json!({ "filter": { "leaf": "leaf", "key": "k2" }, "reason": "a test" });
    let job = client.post("/api/v1/calls/retry", &body).await.expect(202);
    let done = until_state(&client, job["id"].as_i64().unwrap(), "done").await;
    assert_eq!(done["done"], json!(1));
    let other = client.get("/api/v1/jobs/1").await.expect(200);
    assert_eq!(
        (&other["state"], &other["after_id"]),
        (&json!("running"), &json!(0))
    );
    bed.app.until_state(2, "confirmed").await;
    let untouched = client.get("/api/v1/calls/1").await.expect(200);
    assert_eq!(untouched["state"], "failed");
    let told = sidecar.log();
    let told = told.iter().filter(|line| line["job.id"] == 1);
    assert_eq!(told.count(), 1, "{:?}", sidecar.log());
    let end = json!({ "reason": "nobody understands it" });
    let ended = client.post("/api/v1/jobs/1/cancel", &end).await;
    assert_eq!(ended.expect(200)["state"], "cancelled");
}
