//! Calls that wait for the batch's end.

use super::{UNDOES, calls, seal, thing, unsealed, until_finished};
use crate::harness::Bed;

#[tokio::test]
async fn follow_ups_run_by_how_the_batch_ended_each_phase_after_the_one_before() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let _sidecar = bed.sidecar(UNDOES).await;
    let (good, failed) = (unsealed(&bed.app).await, unsealed(&bed.app).await);
    for (batch, name) in [(good, "good"), (failed, "failed")] {
        for phase in ["batch_settled", "batch_failed", "batch_succeeded"] {
            let follow_up = thing(&format!("{name}-{phase}")).batch(batch);
            bed.app.insert(follow_up.set("run_when", phase)).await;
        }
        bed.app.insert(thing(name).batch(batch)).await;
    }
    seal(&bed.app, good).await;
    until_finished(&bed.app, good, "succeeded").await;
    assert_eq!(
        calls(&bed.app, good).await,
        [
            "good-batch_settled confirmed",
            "good-batch_failed cancelled batch_finished",
            "good-batch_succeeded confirmed",
            "good confirmed",
        ]
    );
    // A failed batch needs no seal.
    bed.app.insert(thing("bad").batch(failed)).await;
    until_finished(&bed.app, failed, "cancelled").await;
    let order: Vec<String> = bed
        .leaf
        .all_requests()
        .into_iter()
        .map(|request| request.key)
        .collect();
    let of = |name: &str| -> Vec<String> {
        order
            .iter()
            .filter(|key| key.starts_with(name))
            .cloned()
            .collect()
    };
    assert_eq!(
        of("good"),
        ["good", "good-batch_succeeded", "good-batch_settled"]
    );
    assert_eq!(
        of("failed"),
        [
            "failed",
            "failed",
            "failed-batch_failed",
            "failed-batch_settled"
        ]
    );
}
