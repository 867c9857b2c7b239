//! Work at the database that is given up in the middle costs its connection: nobody gets one that is inside a transaction.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use leafhopper::store::{Store, claim::Looking, connect::Connect};
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Bed, wait::until_within};

/// Connections at most: they are used again as soon as they may be.
const POOL: usize = 2;

/// Each piece of work is given up this often at each of its waits.
const ROUNDS: usize = 8;

/// The server finds out that a connection is closed, long before it gives a transaction up that is idle.
const SOON: Duration = Duration::from_secs(5);

/// Gives it up as it waits for the n-th time, from 0; `None` then.
async fn given_up<T>(work: impl Future<Output = T>, waits: usize) -> Option<T> {
    let (mut work, mut left) = (pin!(work), waits);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Pieces of work whose transactions have one statement, two, and two that go one after the other with a lock in between.
async fn work(store: &Store, which: usize) {
    match which {
        0 => drop(store.expire().await.unwrap()),
        1 => drop(
            store
                .claim(Uuid::nil(), 1, &[], Looking::Fresh)
                .await
                .unwrap(),
        ),
        _ => {
            let taken = store.take_up_untracked(i64::MAX, None).await.unwrap();
            assert!(taken.is_some(), "somebody still holds the lock");
        }
    }
}

#[tokio::test]
async fn work_that_is_given_up_leaves_no_transaction_behind() {
    let bed = Bed::new().await;
    let connect = Connect::parse(&SecretString::from(bed.database.url.clone())).unwrap();
    let store = Store::new(connect, POOL).unwrap().preparing();
    let mut given_up_at = [0; 3];
    for (which, most) in given_up_at.iter_mut().enumerate() {
        for _ in 0..ROUNDS {
            let mut waits = 0;
            while given_up(work(&store, which), waits).await.is_none() {
                waits += 1;
                let inside = "SELECT state FROM pg_stat_activity WHERE datname = current_database()
                               AND application_name LIKE 'leafhopper%' AND state LIKE 'idle in transaction%'";
                let none_inside = async || match bed.app.rows(inside).await {
                    none if none.is_empty() => Ok(()),
                    some => Err(some),
                };
                until_within(SOON, "no session is inside a transaction", none_inside).await;
                // Whoever comes next finds a connection that is of use, and no lock.
                let next = async || match store.take_up_untracked(i64::MAX, None).await {
                    Ok(Some(_)) => Ok(()),
                    other => Err(other),
                };
                until_within(SOON, "the next one works", next).await;
            }
            *most = waits.max(*most);
        }
    }
    println!("given up at so many waits: {given_up_at:?}");
    assert!(
        given_up_at.iter().all(|waits| *waits > 0),
        "{given_up_at:?}"
    );
    let sessions = "SELECT state FROM pg_stat_activity WHERE application_name LIKE 'leafhopper%'
                     AND datname = current_database()";
    until_within(SOON, "those that are left are idle", async || {
        let left = bed.app.rows(sessions).await;
        let idle = json!({ "state": "idle" });
        let all_idle = left.len() <= POOL && left.iter().all(|session| *session == idle);
        if all_idle { Ok(()) } else { Err(left) }
    })
    .await;
    let locks = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(bed.app.rows(locks).await, [Value::Null; 0]);
}
