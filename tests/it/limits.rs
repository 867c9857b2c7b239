//! Limits of a leaf: concurrency, rate, breaker, credentials and priority.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{
    Bed,
    app::{App, Call, call},
    folder::Folder,
    leaf::{Gate, Leaf, Request},
    sidecar::Config,
    wait::{holds_for, until},
};

const QUICK: &str = "retry = { initial = \"30ms\", max = \"60ms\" }";

fn thing(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

async fn flood(app: &App, calls: usize) {
    app.execute(&format!(
        "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/x' FROM generate_series(1, {calls})"
    ))
    .await;
}

async fn until_reason(app: &App, id: i64, reason: &str) -> Value {
    until(&format!("call {id} waits with {reason}"), async || {
        let call = app.call(id).await;
        if call["state"] == "pending" && call["reason"] == reason {
            Ok(call)
        } else {
            Err(call)
        }
    })
    .await
}

async fn until_all_confirmed(app: &App, count: usize) {
    until(&format!("{count} calls are confirmed"), async || {
        let rows = app.rows("SELECT count(*) FROM leafhopper.result").await;
        if rows[0]["count"] == json!(count) {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
}

/// Says "resume" as a person does, to every instance.
async fn resume(app: &App) {
    app.execute(
        "UPDATE leafhopper.leaf_control SET resumed_at = clock_timestamp() WHERE leaf = 'leaf';
         NOTIFY leafhopper_instance",
    )
    .await;
}

#[tokio::test]
async fn the_concurrency_is_used_in_full_by_one_and_kept_by_all_whoever_comes_and_goes() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(30))
        .answers(201);
    // A request ends long before a dead instance's lease does, and none is given up that the leaf still has.
    let config = bed.config("concurrency = 6").dispatch("lease = \"6s\"");
    flood(&bed.app, 100_000).await;
    let mut a = config.start().await;
    until("one alone uses it in full", async || {
        match bed.leaf.most_at_once(None) {
            6 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let b = config.start().await;
    let mut c = config.start().await;
    for sidecar in [&a, &b, &c] {
        until("each has its share", async || {
            let limit = sidecar
                .metric("leafhopper_concurrency_limit", &["leaf=\"leaf\""])
                .await;
            if (limit - 2.0).abs() < 0.1 {
                Ok(())
            } else {
                Err(limit)
            }
        })
        .await;
    }
    let share_of = async |wanted: f64| {
        until("the share has grown", async || {
            let limit = b
                .metric("leafhopper_concurrency_limit", &["leaf=\"leaf\""])
                .await;
            if (limit - wanted).abs() < 0.1 {
                Ok(())
            } else {
                Err(limit)
            }
        })
        .await;
    };
    assert!(c.stop().await.success());
    share_of(3.0).await;
    a.kill();
    share_of(6.0).await;
    let before = bed.leaf.all_requests().len();
    until("the last one works on", async || {
        match bed.leaf.all_requests().len() {
            now if now > before + 50 => Ok(()),
            now => Err(now),
        }
    })
    .await;
    assert_eq!(bed.leaf.most_at_once(None), 6);
}

#[tokio::test]
async fn a_concurrency_of_one_is_one_over_two_instances_and_both_are_ready() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(5))
        .answers(201);
    let config = bed.config("concurrency = 1").dispatch("lease = \"6s\"");
    let (_a, _b) = tokio::join!(config.start(), config.start());
    flood(&bed.app, 40).await;
    until_all_confirmed(&bed.app, 40).await;
    assert_eq!(bed.leaf.most_at_once(None), 1);
}

#[tokio::test]
async fn a_slot_that_becomes_free_is_filled_at_once() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .takes(Duration::from_millis(400))
        .answers(201);
    let config = bed
        .config("concurrency = 2")
        .leaf("idle", &bed.leaf.url(), "")
        .poll_interval("5s");
    let _sidecar = config.start().await;
    let began = Instant::now();
    flood(&bed.app, 8).await;
    until_all_confirmed(&bed.app, 8).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}

/// The most requests that arrived within any such time.
fn most_within(requests: &[Request], window: Duration) -> usize {
    let mut times: Vec<Instant> = requests.iter().map(|request| request.at).collect();
    times.sort();
    (0..times.len())
        .map(|first| {
            times[first..]
                .iter()
                .take_while(|at| at.duration_since(times[first]) < window)
                .count()
        })
        .max()
        .unwrap_or_default()
}

#[tokio::test]
async fn the_rate_is_kept_and_used_over_two_instances() {
    let bed = Bed::new().await;
    // Long, so that no free slot reminds the sidecar of the next token.
    bed.leaf
        .always()
        .takes(Duration::from_millis(1500))
        .answers(201);
    let config = bed
        .config("rate = \"40/s\"\nconcurrency = 200")
        .poll_interval("1500ms")
        .dispatch("lease = \"2s\"");
    let (a, b) = tokio::join!(config.start(), config.start());
    for sidecar in [&a, &b] {
        until("each has its share", async || {
            let limit = sidecar
                .metric("leafhopper_concurrency_limit", &["leaf=\"leaf\""])
                .await;
            if (limit - 100.0).abs() < 0.1 {
                Ok(())
            } else {
                Err(limit)
            }
        })
        .await;
    }
    flood(&bed.app, 120).await;
    let last = bed.app.insert(thing("last").set("priority", 1)).await;
    until_reason(&bed.app, last, "rate_limited").await;
    bed.leaf.until_requests("last", 1).await;
    let requests = bed.leaf.all_requests();
    let first = requests.iter().map(|request| request.at).min().unwrap();
    let took = requests.last().unwrap().at.duration_since(first);
    // A second's worth, a burst of a tenth of it for each instance, and what a stall has held up on its way. Twice the rate, as
    // each instance would keep it alone, are 80.
    let most = most_within(&requests, Duration::from_secs(1));
    assert!(most <= 40 + 4 + 16, "{most} in a second");
    assert!(took < Duration::from_secs(15), "121 at 40/s took {took:?}");
}

#[tokio::test]
async fn a_refused_credential_keeps_back_only_its_own_calls_and_spends_nothing() {
    let bed = Bed::new().await;
    let folder = Folder::new();
    folder.write("good", "good-token-1");
    folder.write("bad", "bad-token-1");
    let own = bed.leaf.always();
    own.answers(201);
    let lines = format!(
        "concurrency = 8\n{QUICK}\nauth = {{ bearer = {{ env = \"LEAF_TOKEN\" }} }}\n\
         credentials = {{ dir = {:?} }}",
        folder.path()
    );
    bed.leaf.on("/refused").refuses(401);
    let config = bed.config(&lines);
    let sidecar = config
        .sidecar()
        .environment("LEAF_TOKEN", "own-token-1")
        .start()
        .await;
    let refused = |key: &str| thing(key).path("/refused").set("credential", "bad");
    let mut kept_back = vec![bed.app.insert(refused("first")).await];
    let first = until_reason(&bed.app, kept_back[0], "breaker_open").await;
    assert_eq!(
        (&first["attempts"], &first["last_status"]),
        (&json!(0), &json!(401))
    );
    for number in 0..60 {
        kept_back.push(bed.app.insert(refused(&format!("r-{number}"))).await);
    }
    let others = [thing("good").set("credential", "good"), thing("own")];
    for other in others {
        let id = bed.app.insert(other).await;
        bed.app.until_state(id, "confirmed").await;
    }
    assert!(
        (sidecar
            .metric("leafhopper_breaker_open", &["leaf=\"leaf\""])
            .await
            - 1.0)
            .abs()
            < 0.1
    );
    let tried = bed.leaf.requests("first").len();
    assert_eq!(tried, 1, "one 401 is enough");
    assert_eq!(bed.leaf.all_requests().len(), 3);

    // Somebody writes the right token into the file.
    bed.leaf.on("/refused").answers(201);
    folder.write("bad", "right-token-1");
    let began = Instant::now();
    for id in kept_back {
        bed.app.until_state(id, "confirmed").await;
    }
    assert!(began.elapsed() < Duration::from_secs(12));
    let sent = bed.leaf.requests("r-1");
    assert_eq!(
        sent[0].header("authorization"),
        Some("Bearer right-token-1")
    );
    let attempts = bed
        .app
        .rows("SELECT attempts FROM leafhopper.call WHERE key = 'first'")
        .await;
    assert_eq!(attempts, [json!({ "attempts": 1 })]);
}

#[tokio::test]
async fn a_credential_that_is_not_there_is_waited_for() {
    let bed = Bed::new().await;
    let folder = Folder::new();
    let lines = format!(
        "auth = {{ header = {{ name = \"X-Token\", value = {{ env = \"LEAF_TOKEN\" }} }} }}\n\
         credentials = {{ dir = {:?} }}",
        folder.path()
    );
    let config = bed.config(&lines);
    let starter = config.sidecar().environment("LEAF_TOKEN", "own-token-1");
    let _sidecar = starter.start().await;
    let id = bed.app.insert(thing("a").set("credential", "acme")).await;
    let call = until_reason(&bed.app, id, "credential_unknown").await;
    assert_eq!(call["attempts"], json!(0));
    let other = bed.app.insert(thing("b")).await;
    bed.app.until_state(other, "confirmed").await;
    folder.write("acme", "acme-token-1");
    bed.app.until_state(id, "confirmed").await;
    let sent = bed.leaf.requests("a");
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].header("x-token"), Some("acme-token-1"));
}

#[tokio::test]
async fn failed_connections_keep_the_leaf_s_calls_back_until_it_is_resumed() {
    let bed = Bed::new().await;
    // Reserved, and nobody listens: refused.
    let gone = {
        let leaf = Leaf::start().await;
        leaf.url()
    };
    let config = |url: &str| {
        Config::new(&bed.database.url)
            .leaf("leaf", url, &format!("concurrency = 1\n{QUICK}"))
            .dispatch("lease = \"3s\"")
    };
    let sidecar = config(&gone).start().await;
    let id = bed.app.insert(thing("a")).await;
    let call = until_reason(&bed.app, id, "breaker_open").await;
    assert_eq!(call["attempts"], json!(0), "it spends nothing");
    assert_eq!(bed.app.attempts(id).await.len(), 5);
    let other = bed.app.insert(thing("b")).await;
    until_reason(&bed.app, other, "breaker_open").await;
    // The leaf comes back, and a person knows before the sidecar does.
    sidecar.rewrite(&config(&bed.leaf.url()));
    sidecar.signal(rustix::process::Signal::HUP);
    resume(&bed.app).await;
    // The breaker alone would take longer.
    until("both are confirmed", async || {
        let states = [bed.app.state(id).await, bed.app.state(other).await];
        if states.iter().all(|state| state == "confirmed") {
            return Ok(());
        }
        // Until the new address is read, the breaker may open once more.
        resume(&bed.app).await;
        Err(states)
    })
    .await;
    assert!(
        sidecar
            .metric("leafhopper_breaker_open", &["leaf=\"leaf\""])
            .await
            < 0.1
    );
}

/// What a reload takes away still has its requests under way, and may come back before they have ended.
#[tokio::test]
async fn requests_of_a_leaf_that_a_reload_takes_away_and_brings_back_count() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_effect(&gate)
        .answers(201);
    let config = bed.config("concurrency = 2").dispatch("lease = \"2s\"");
    let sidecar = config.start().await;
    flood(&bed.app, 2).await;
    gate.until_arrived(2).await;
    let without = Config::new(&bed.database.url).leaf("other", &bed.leaf.url(), "");
    sidecar.rewrite(&without.dispatch("lease = \"2s\""));
    sidecar.signal(rustix::process::Signal::HUP);
    let waits = bed.app.insert(thing("waits")).await;
    until_reason(&bed.app, waits, "leaf_unknown").await;
    // Another one has no share while they last.
    let other = config.start().await;
    holds_for(Duration::from_secs(1), "it waits for a share", async || {
        let share = other.metric("leafhopper_concurrency_limit", &["leaf=\"leaf\""]);
        let share = share.await;
        if share < 0.5 { Ok(()) } else { Err(share) }
    })
    .await;
    drop(other);
    sidecar.rewrite(&config);
    sidecar.signal(rustix::process::Signal::HUP);
    until("it is back, and full", async || {
        let full = bed.app.call(waits).await["reason"] != "leaf_unknown";
        let share = sidecar.metric("leafhopper_concurrency_limit", &["leaf=\"leaf\""]);
        match (full, share.await) {
            (true, share) if share > 1.5 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    holds_for(
        Duration::from_millis(500),
        "they count",
        async || match bed.leaf.most_at_once(None) {
            2 => Ok(()),
            more => Err(more),
        },
    )
    .await;
    gate.open();
    until_all_confirmed(&bed.app, 3).await;
    assert_eq!(bed.leaf.most_at_once(None), 2);
}

#[tokio::test]
async fn a_refused_auth_keeps_the_backlog_as_it_is() {
    let bed = Bed::new().await;
    bed.leaf.always().times(1).refuses(401);
    let _sidecar = bed.sidecar(&format!("concurrency = 1\n{QUICK}")).await;
    flood(&bed.app, 300).await;
    let last = bed.app.insert(thing("urgent").set("priority", -1)).await;
    until_reason(&bed.app, last, "breaker_open").await;
    let touched = "SELECT count(*) FROM leafhopper.dispatch WHERE deferred_since IS NOT NULL OR due_at IS NOT NULL";
    holds_for(
        Duration::from_secs(1),
        "the others are as they were",
        async || {
            let touched = bed.app.rows(touched).await[0]["count"].as_u64();
            // The one that was refused, and what was claimed before that.
            if touched < Some(40) {
                Ok(())
            } else {
                Err(touched)
            }
        },
    )
    .await;
    resume(&bed.app).await;
    until_all_confirmed(&bed.app, 301).await;
}
