//! Answers that say neither "there" nor "not there", and leaves that say nothing.

use serde_json::json;

use super::{PROBE, QUICK, asked_and_sent, asking, post};
use crate::harness::{
    Bed,
    leaf::{Gate, Leaf, On, Reply},
    sidecar::Config,
    wait::until,
};

type Script = fn(On<'_>);

/// A name, what the leaf answers, and what is said of it.
#[rustfmt::skip]
fn answers() -> Vec<(&'static str, Script, &'static str)> {
    vec![
        ("500", |on| on.refuses(500), "answered 500"),
        ("503", |on| on.refuses(503), "answered 503"),
        ("403", |on| on.refuses(403), "answered 403"),
        ("302", |on| on.refuses(Reply::new(302).header("location", "/effects/x")), "answered 302"),
        ("304", |on| on.refuses(304), "answered 304"),
        ("hangs", |on| on.hangs(), ""),
        ("closes", |on| on.closes(), ""),
        ("cut", |on| on.truncates(Reply::json(200, &json!({"key": "cut"}))), ""),
        ("garbage", |on| on.answers_raw("hello\r\n\r\n"), ""),
        ("html", |on| on.answers(Reply::bytes(200, "<html>Sign in</html>")), "`found`"),
        ("empty", |on| on.answers(204), "`found`"),
        ("other shape", |on| on.answers(Reply::json(200, &json!({"items": []}))), "`found`"),
        ("long", |on| on.answers(Reply::bytes(200, "x".repeat(5000))), "max_response_bytes"),
        ("nul", |on| on.refuses(Reply::bytes(418, "a\0b\u{ff}")), "answered 418"),
    ]
}

#[tokio::test]
async fn what_is_unclear_parks_after_so_many_probes_and_says_what_was_seen() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let lines = format!("{QUICK}\nconcurrency = 40\nmax_response_bytes = \"4KiB\"");
    let hasty = lines.replace("10s", "1s");
    let config = bed.config(&lines).leaf("hasty", &bed.leaf.url(), &hasty);
    let config = config.probe("leaf", PROBE).probe("hasty", PROBE);
    let sidecar = config.start().await;
    let mut ids = Vec::new();
    for (name, script, _) in &answers() {
        script(bed.leaf.on("/effects").key(name));
        // Only what says nothing is waited for.
        let leaf = if *name == "hangs" { "hasty" } else { "leaf" };
        ids.push(bed.app.insert(post(name).set("leaf", leaf)).await);
    }
    for ((name, _, seen), id) in answers().iter().zip(ids) {
        let call = bed.app.until_state(id, "parked").await;
        assert_eq!(call["reason"], "probe_unclear", "{name}");
        let error = call["last_error"].as_str().unwrap();
        assert!(error.contains(seen), "{name}: {error}");
        let history = bed.app.history(id).await;
        assert_eq!(
            history.matches("probe_unclear").count(),
            3,
            "{name}: {history}"
        );
        assert_eq!(asked_and_sent(&bed, name), (3, 1), "{name}");
        bed.leaf.assert_each_effect_once([name]);
    }
    let verdict = ["verdict=\"unclear\""];
    sidecar
        .until_metric("leafhopper_probes_total", &verdict, 42.0)
        .await;
    let parked = bed
        .app
        .rows("SELECT id FROM leafhopper.call WHERE key = 'html'")
        .await;
    let shown = sidecar
        .command(&["show", &parked[0]["id"].to_string()])
        .await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    for part in ["the probes gave no clear answer", "--not-executed"] {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
}

#[tokio::test]
async fn a_wait_that_the_leaf_asks_for_is_kept_and_does_not_count() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    bed.leaf.on("/effects/busy").times(5).refuses(429);
    bed.leaf
        .on("/effects/later")
        .times(1)
        .refuses(Reply::new(503).header("retry-after", "600"));
    let _sidecar = asking(&bed, "").start().await;
    let busy = bed.app.insert(post("busy")).await;
    let later = bed.app.insert(post("later")).await;
    bed.app.until_state(busy, "confirmed").await;
    assert_eq!(asked_and_sent(&bed, "busy"), (6, 1));
    let wait = until("the leaf's word is kept", async || {
        let sql = format!(
            "SELECT extract(epoch FROM next_attempt_at - now())::float8 AS wait FROM leafhopper.call WHERE id = {later}"
        );
        let wait = bed.app.rows(&sql).await[0]["wait"].as_f64();
        wait.filter(|wait| *wait > 30.0).ok_or(wait)
    })
    .await;
    assert!((580.0..601.0).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_credential_that_is_refused_parks_nothing_and_opens_its_breaker() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    bed.leaf.on("/effects").refuses(401);
    let sidecar = asking(&bed, "").start().await;
    let id = bed.app.insert(post("k")).await;
    sidecar
        .until_metric("leafhopper_breaker_open", &[], 1.0)
        .await;
    let fresh = bed.app.insert(post("fresh")).await;
    until("the credential's breaker keeps calls back", async || {
        let call = bed.app.call(fresh).await;
        if call["reason"] == "breaker_open" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    assert_eq!(bed.app.state(id).await, "in_doubt");
    bed.leaf.behaves();
    sidecar
        .command(&["resume", "leaf", "--reason", "new token"])
        .await;
    bed.app.until_state(id, "confirmed").await;
    bed.app.until_state(fresh, "confirmed").await;
    bed.leaf.assert_each_effect_once(["k", "fresh"]);
}

#[tokio::test]
async fn a_leaf_that_is_down_parks_nothing() {
    let bed = Bed::new().await;
    let leaf = Leaf::start().await;
    let gate = Gate::closed();
    leaf.on("/things").waits_before_the_answer(&gate).resets();
    let probe = PROBE.replace("max_probes = 3", "max_probes = 1");
    let sidecar = Config::new(&bed.database.url)
        .leaf("leaf", &leaf.url(), &QUICK.replace("50ms", "20ms"))
        .probe("leaf", &probe)
        .start()
        .await;
    let id = bed.app.insert(post("k")).await;
    gate.until_arrived(1).await;
    drop(leaf);
    until("its breaker is open", async || {
        let open = sidecar.metric("leafhopper_breaker_open", &[]).await;
        if open > 0.0 {
            Ok(())
        } else {
            Err(bed.app.call(id).await)
        }
    })
    .await;
    // Its own look at the leaf is recorded after it has opened the breaker.
    let wanted = format!("in_doubt{}", ", probe_unclear".repeat(5));
    until("each look is recorded", async || {
        let history = bed.app.history(id).await;
        if history == wanted {
            Ok(())
        } else {
            Err(history)
        }
    })
    .await;
    let call = bed.app.call(id).await;
    assert_eq!(call["state"], "in_doubt", "{call}");
}
