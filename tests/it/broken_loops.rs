//! A loop that panics ends the process, as a failure: half a sidecar would be worse than one that is started again. An
//! attempt that panics is a doubt.

use serde_json::Value;

use crate::harness::{
    Bed,
    app::keyed,
    leaf::Remembers,
    sidecar::{Config, Sidecar},
};

/// One that panics there, at its end.
async fn broken_at(config: &Config, step: &str) -> Sidecar {
    let starter = config.sidecar();
    let mut sidecar = starter.environment("LEAFHOPPER_PANIC_AT", step).launch();
    let ended = sidecar.exit().await;
    assert_eq!(
        ended.code(),
        Some(1),
        "{step}: whoever restarts what failed has to"
    );
    sidecar
}

fn says(sidecar: &Sidecar, words: &str) -> bool {
    let told = |line: &Value| {
        let message = line["message"].as_str().unwrap_or_default();
        line["level"] == "ERROR" && message.contains(words)
    };
    sidecar.log().iter().any(told)
}

/// Of a leaf that honours idempotency keys.
const KEYED: &str = "timeout = \"2s\"\nretry = { initial = \"20ms\", max = \"20ms\" }\n\
                     idempotency = { header = \"Idempotency-Key\", window = \"1h\" }";

#[tokio::test]
async fn a_loop_that_panics_ends_the_process_and_the_next_one_goes_on() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let config = bed.config(KEYED).dispatch("lease = \"1s\"");
    let mut keys = Vec::new();
    for (step, name) in [
        ("claim calls: before", "dispatcher"),
        ("renew the lease: done", "heartbeat"),
        ("look around: done", "lookout"),
        ("record confirmations: before", "recorder"),
    ] {
        bed.app.insert(keyed("leaf", step)).await;
        keys.push(step);
        let sidecar = broken_at(&config, step).await;
        assert!(
            says(&sidecar, &format!("loop {name} has ended")),
            "{step}: {:#?}",
            sidecar.log()
        );
    }
    let _next = config.start().await;
    bed.app.until_all_confirmed(keys.len()).await;
    bed.leaf.assert_each_effect_once(keys);
}

#[tokio::test]
async fn an_attempt_that_panics_leaves_its_call_in_doubt_and_the_others_alone() {
    let bed = Bed::new().await;
    bed.leaf.honours("Idempotency-Key", Remembers::Successes);
    let starter = bed.config(&KEYED.replace("2s", "20s")).sidecar();
    let starter = starter.environment("LEAFHOPPER_PANIC_AT", "attempt: decided");
    let mut sidecar = starter.start().await;
    let id = bed.app.insert(keyed("leaf", "panics")).await;
    let other = bed.app.insert(keyed("leaf", "other")).await;
    bed.app.until_state(id, "confirmed").await;
    bed.app.until_state(other, "confirmed").await;
    let rows = bed
        .app
        .rows("SELECT class, error FROM leafhopper.attempt")
        .await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let told = rows[0]["error"].as_str().unwrap_or_default();
    assert!(
        rows[0]["class"] == "in_doubt" && told.contains("panicked"),
        "{rows:?}"
    );
    bed.leaf.assert_each_effect_once(["panics", "other"]);
    assert_eq!(sidecar.stop().await.code(), Some(0));
}
