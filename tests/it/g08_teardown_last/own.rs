//! What is undone is the batch's own effect, and no other one: not what was only read, not the key's next effect, and not what
//! another batch builds on meanwhile.

use serde_json::json;

use super::{UNDOES, calls, thing, undone, unsealed, until_batch, until_finished};
use crate::harness::{Bed, app::call, leaf::Gate};

/// A request that changes nothing may be answered with what somebody else has made.
#[tokio::test]
async fn what_was_only_read_is_not_undone_by_the_leaf_s_compensation() {
    let bed = Bed::new().await;
    for key in ["read", "marked"] {
        bed.leaf.has_already(key);
    }
    bed.leaf.always().key("bad").refuses(422);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let read = |key: &str| {
        let read = call("leaf").key(key).method("GET");
        read.path(&format!("/effects/{key}")).batch(batch)
    };
    // What a row brings of its own is meant for it.
    let own = json!({ "method": "DELETE", "path": "/effects/{{ call.key }}" });
    for call in [read("read"), read("marked").set("compensate", own)] {
        let id = bed.app.insert(call).await;
        bed.app.until_state(id, "confirmed").await;
    }
    bed.app.insert(thing("bad").batch(batch)).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["marked"]);
    assert_eq!(bed.leaf.standing("read"), 1);
}

/// Nothing of it has to be undone, so sending it again is a question that anybody may ask.
#[tokio::test]
async fn what_was_only_read_parks_nobody_s_teardown() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf.has_already("read");
    let first = bed.leaf.always().key("read").method("GET").times(1);
    first.waits_before_the_answer(&gate).resets();
    bed.leaf.always().key("bad").refuses(422);
    let retry = "retry = { initial = \"20ms\", max = \"50ms\" }";
    let _sidecar = bed.sidecar(retry).await;
    let batch = unsealed(&bed.app).await;
    let read = call("leaf").key("read").method("GET");
    let read = read.path("/effects/read").batch(batch);
    bed.app.insert(read).await;
    gate.until_arrived(1).await;
    bed.app.insert(thing("bad").batch(batch)).await;
    until_batch(&bed.app, batch, "cancelling").await;
    gate.open();
    until_finished(&bed.app, batch, "cancelled").await;
    let calls = calls(&bed.app, batch).await;
    assert_eq!(calls, ["read confirmed", "bad failed rejected"]);
}
