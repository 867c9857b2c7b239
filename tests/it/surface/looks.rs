//! Looks at the tables: one at a time for all who ask.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::harness::{Bed, database};

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
