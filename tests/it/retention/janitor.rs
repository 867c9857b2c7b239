//! It happens by itself: one instance of many does it.

use super::thing;
use crate::harness::{Bed, wait::until};

const SOON: &str = "[retention]\nfinished = \"1s\"";

async fn until_gone(bed: &Bed) {
    until("what has ended is gone", async || {
        let left = super::keys(&bed.app).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test]
async fn the_instance_that_has_lived_longest_prunes_and_another_one_after_it() {
    let bed = Bed::new().await;
    let config = bed.config("").toml(SOON).dispatch("lease = \"6s\"");
    let mut first = config.start().await;
    let second = config.start().await;
    for key in ["a", "b"] {
        bed.app.insert(thing(key)).await;
        bed.leaf.until_requests(key, 1).await;
    }
    until_gone(&bed).await;
    let pruned = "leafhopper_pruned_rows_total";
    let calls = ["table=\"calls\""];
    first.until_metric(pruned, &calls, 2.0).await;
    second.until_metric(pruned, &calls, 0.0).await;
    until("it says so", async || {
        let log = first.lines();
        let said = log
            .iter()
            .any(|line| line.contains("pruned what had ended long ago"));
        if said { Ok(()) } else { Err(log) }
    })
    .await;
    first.kill();
    bed.app.insert(thing("c")).await;
    bed.leaf.until_requests("c", 1).await;
    until_gone(&bed).await;
    second.until_metric(pruned, &calls, 1.0).await;
    bed.leaf.assert_each_effect_once(["a", "b", "c"]);
}

#[tokio::test]
async fn a_reload_changes_how_long_rows_are_kept() {
    let bed = Bed::new().await;
    let config = bed.config("").toml("[retention]\nfinished = \"10s\"");
    let sidecar = config.start().await;
    let id = bed.app.insert(thing("a")).await;
    bed.app.until_state(id, "confirmed").await;
    sidecar.rewrite(&bed.config("").toml("[retention]\nfinished = \"forever\""));
    sidecar.signal(rustix::process::Signal::HUP);
    until("it was read again", async || {
        let log = sidecar.lines();
        let read = log.iter().any(|line| line.contains("was read again"));
        if read { Ok(()) } else { Err(log) }
    })
    .await;
    super::age(&bed.app, 400).await;
    crate::harness::wait::holds_for(std::time::Duration::from_secs(3), "it stays", async || {
        let left = super::keys(&bed.app).await;
        if left == ["a"] { Ok(()) } else { Err(left) }
    })
    .await;
}
