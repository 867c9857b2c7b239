//! Looks at the tables: one at a time for all who ask, and none that is older than what a person has just done.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::unsealed;
use crate::{
    api::Client,
    harness::{
        Bed,
        app::call,
        database,
        wait::{holds_for, until},
    },
    page::visitor::Visitor,
};

/// The statements of a look that wait for a lock.
const WAITING: &str = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                       AND (query LIKE '-- What the tables hold%' OR query LIKE '-- Live instances%')";

/// No look gets an answer any more: each is given up by the server as soon as it waits. Tells how many there were.
async fn give_up_looks(url: &str, until: impl Future) -> usize {
    let server = database::connect(url).await;
    let give_up = format!("SELECT pid, query_start::text, pg_cancel_backend(pid) {WAITING}");
    let mut looks = BTreeSet::new();
    let give_up = async {
        loop {
            for row in server.query(&give_up, &[]).await.unwrap() {
                looks.insert((row.get::<_, i32>(0), row.get::<_, String>(1)));
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = until => {}
        () = give_up => {}
    }
    looks.len()
}

#[tokio::test]
async fn however_many_ask_a_database_that_does_not_answer_is_asked_once_a_second() {
    const ASK: usize = 15;
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    bed.app
        .execute("BEGIN; LOCK TABLE leafhopper.batch IN ACCESS EXCLUSIVE MODE")
        .await;
    let began = Instant::now();
    let asked = async {
        join_all((0..ASK).map(|_| sidecar.get("/metrics"))).await;
        for _ in 0..ASK {
            sidecar.get("/metrics").await;
        }
    };
    let looks = give_up_looks(&bed.database.url, asked).await;
    let took = began.elapsed();
    bed.app.execute("ROLLBACK").await;
    let most = 2 + took.as_secs();
    assert!(looks > 0 && looks as u64 <= most, "{looks} in {took:?}");
}

#[tokio::test]
async fn what_a_person_does_waits_for_no_look_and_the_next_look_is_not_older() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    // The second statement of a look waits for this lock, with the first one's numbers read.
    unsealed(&bed).await;
    bed.app
        .execute(
            "CREATE OR REPLACE FUNCTION leafhopper.batch_waits_since(b leafhopper.batch) RETURNS timestamptz
             LANGUAGE plpgsql VOLATILE AS
             'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN (b).idle_since; END';
             SELECT pg_advisory_lock(4711)",
        )
        .await;
    let id = bed.app.insert(call("nobody")).await;
    let waiting = format!("SELECT count(*) {WAITING}");
    let one_waits = async || match &bed.app.rows(&waiting).await[0]["count"] {
        one if *one == 1 => Ok(()),
        other => Err(other.clone()),
    };
    until("a look waits", async || {
        let scrape = client.request(Method::GET, "/metrics");
        // What was seen before may still be good.
        drop(scrape.timeout(Duration::from_millis(200)).send().await);
        one_waits().await
    })
    .await;

    let cancel = [("do", "cancel"), ("reason", "a mistake")];
    let path = format!("/calls/{id}");
    let done = Visitor::of(&sidecar).post(&path, &cancel).await;
    assert_eq!(done.status, 303, "{done:#?}");
    one_waits().await.expect("the look has not ended");

    let pending = async || {
        let leaves = client.get("/api/v1/leaves").await.expect(200);
        let leaves = leaves["leaves"].as_array().unwrap().iter();
        let mut nobodys = leaves.filter(|leaf| leaf["name"] == "nobody");
        nobodys.next().map(|leaf: &Value| leaf["pending"].clone())
    };
    let mut asked = pin!(pending());
    tokio::select! {
        early = &mut asked => panic!("{early:?} while the look waits"),
        () = holds_for(Duration::from_millis(300), "one look at a time", one_waits) => {}
    }
    bed.app.execute("SELECT pg_advisory_unlock(4711)").await;
    assert_eq!(asked.await, None);
    assert_eq!(pending().await, None);
}
