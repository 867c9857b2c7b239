//! What a sidecar tells unasked: notifications without content, and how quiet it is when idle.

use std::time::Duration;

use serde_json::json;
use tokio::{sync::mpsc, time::Instant};
use tokio_postgres::{AsyncMessage, NoTls};

use crate::{
    harness::{
        Bed,
        app::{App, Call, call},
        wait::{holds_for, until, until_within},
    },
    producer::until_sleeping,
};

fn thing(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

#[tokio::test]
async fn listeners_are_told_without_content_and_not_too_often() {
    let bed = Bed::new().await;
    bed.leaf.always().key("no").refuses(422);
    bed.leaf.always().key("lost").resets();
    let _sidecar = bed.sidecar("concurrency = 4").await;
    let (_results, mut results) = listen(&bed.database.url, "leafhopper_result").await;
    let (_calls, mut calls) = listen(&bed.database.url, "leafhopper_call").await;
    let yes = bed.app.insert(thing("yes")).await;
    assert_eq!(next(&mut results).await.1, "");
    assert_eq!(bed.app.state(yes).await, "confirmed");
    assert!(calls.try_recv().is_err());
    let batch = uuid::Uuid::new_v4();
    let expires = thing("expires").set("not_before", "2100-01-01T00:00:00Z");
    for (row, state) in [
        (thing("no"), "failed"),
        (thing("lost"), "parked"),
        (expires.set("deadline", "2000-01-01T00:00:00Z"), "expired"),
    ] {
        let id = bed.app.insert(row).await;
        assert_eq!(next(&mut calls).await.1, "");
        assert_eq!(bed.app.state(id).await, state);
    }
    bed.leaf.on("/no").refuses(422);
    bed.app.insert(call("nobody").batch(batch)).await;
    bed.app.insert(thing("no-2").path("/no").batch(batch)).await;
    next(&mut calls).await;

    while results.try_recv().is_ok() {}
    let began = Instant::now();
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, 200)",
        )
        .await;
    until("all are confirmed", async || {
        let live = bed
            .app
            .rows("SELECT count(*) FROM leafhopper.dispatch WHERE state <> 'parked'")
            .await;
        if live[0]["count"] == 0 {
            Ok(())
        } else {
            Err(live)
        }
    })
    .await;
    let mut times = vec![next(&mut results).await.0];
    holds_for(Duration::from_millis(150), "", async || {
        while let Ok((at, _)) = results.try_recv() {
            times.push(at);
        }
        Ok::<(), ()>(())
    })
    .await;
    // What was told late is not told more often: it counts from the beginning.
    let span = times[times.len() - 1].duration_since(began);
    let most = span.as_millis() / 50 + 2;
    assert!(times.len() as u128 <= most, "{} in {span:?}", times.len());
}

/// What an idle sidecar asks the database for, and how often at most in three seconds. No loop is among them that the look
/// tells of what is due.
const IDLE: [(&str, u32); 5] = [
    ("look around", 4),
    ("claim calls", 2),
    ("announce sleep", 1),
    // Six times in a lease of 30 s.
    ("renew the lease", 1),
    // Each twenty seconds.
    ("take up untracked calls", 1),
];

#[tokio::test]
async fn an_idle_sidecar_is_quiet() {
    let bed = Bed::new().await;
    let config = bed.config("").poll_interval("1s");
    let config = config.sidecar();
    let sidecar = config
        .environment("LEAFHOPPER_LOG_LEVEL", "leafhopper::step=trace,info")
        .start()
        .await;
    let id = bed.app.insert(thing("a")).await;
    bed.app.until_state(id, "confirmed").await;
    // Each transaction is told of before it begins (src/step.rs).
    let begun = || -> Vec<String> {
        let log = sidecar.log();
        let steps = log
            .iter()
            .filter(|line| line["target"] == "leafhopper::step");
        let steps = steps.filter_map(|line| line["message"].as_str()?.strip_suffix(": before"));
        steps.map(str::to_owned).collect()
    };
    // Until it sleeps, it polls every few milliseconds.
    until_sleeping(&bed.app).await;
    holds_for(Duration::from_millis(1200), "", async || Ok::<(), ()>(())).await;
    let before = begun().len();
    let since = Instant::now();
    holds_for(Duration::from_secs(3), "", async || Ok::<(), ()>(())).await;
    let begun = &begun()[before..];
    let seconds = since.elapsed().as_secs_f64();
    println!("in {seconds} s an idle sidecar begins {begun:?}");
    assert!(!begun.is_empty());
    let too_many: Vec<_> = begun
        .iter()
        .filter(|name| {
            let times = begun.iter().filter(|other| other == name).count();
            let times = f64::from(u32::try_from(times).unwrap());
            let most = IDLE.iter().find(|(known, _)| known == name);
            // A busy machine gives it more than the three seconds.
            most.is_none_or(|(_, most)| times > f64::from(*most) * seconds / 3.0 + 0.5)
        })
        .collect();
    assert!(too_many.is_empty(), "{too_many:?}");
    // A session of its own needs no transaction to look: else the last that it said would be COMMIT.
    let looks = "SELECT count(*) > 0 AS alone FROM pg_stat_activity \
                  WHERE datname = current_database() AND state = 'idle' \
                    AND query LIKE '-- Which loops have something to do%'";
    until("it looks without one", async || {
        match bed.app.rows(looks).await {
            found if found == [json!({ "alone": true })] => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

/// What is due is seen by one look for all loops. Where that hangs, each looks by itself.
#[tokio::test]
async fn what_is_due_does_not_wait_for_a_look_that_hangs() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let first = bed.app.insert(thing("first")).await;
    bed.app.until_state(first, "confirmed").await;
    let other = App::connect(&bed.database.url).await;
    // Only the look and the loop of the jobs read it.
    other
        .execute("BEGIN; LOCK TABLE leafhopper.job IN ACCESS EXCLUSIVE MODE")
        .await;
    let times = "'infinity', clock_timestamp() + interval '300 ms'";
    let id = bed.app.insert_values("not_before, deadline", times).await;
    // Not by the look, which is given up after 20 s.
    let limit = Duration::from_secs(10);
    until_within(limit, "the call expires", async || {
        match bed.app.state(id).await.as_str() {
            "expired" => Ok(()),
            state => Err(state.to_owned()),
        }
    })
    .await;
    other.execute("ROLLBACK").await;
}

/// Listens; gives what arrives with its time.
async fn listen(
    url: &str,
    channel: &str,
) -> (
    tokio_postgres::Client,
    mpsc::UnboundedReceiver<(Instant, String)>,
) {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let AsyncMessage::Notification(notification) = message {
                let payload = notification.payload().to_owned();
                sender.send((Instant::now(), payload)).ok();
            }
        }
    });
    client
        .batch_execute(&format!("LISTEN {channel}"))
        .await
        .unwrap();
    (client, receiver)
}

async fn next(notifications: &mut mpsc::UnboundedReceiver<(Instant, String)>) -> (Instant, String) {
    let waiting = tokio::time::timeout(crate::harness::wait::LIMIT, notifications.recv());
    waiting.await.expect("a notification arrives").unwrap()
}
