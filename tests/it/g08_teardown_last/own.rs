//! What is undone is the batch's own effect, and no other one: not what was only read, not the key's next effect, and not what
//! another batch builds on meanwhile.

use std::time::Duration;

use serde_json::json;

use super::{
    UNDOES, calls, confirmed, thing, undone, unsealed, until_batch, until_finished, until_undoing,
    withdraw,
};
use crate::harness::{
    Bed,
    app::{App, call},
    leaf::Gate,
    wait::{holds_for, until},
};

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

/// The work is inserted anew, as soon as its first batch has failed.
#[tokio::test]
async fn a_call_whose_effect_is_about_to_be_undone_waits_and_makes_it_anew() {
    let bed = Bed::new().await;
    let undoing = Gate::closed();
    let newer = bed.leaf.always().key("newer").method("DELETE");
    newer.waits_before_the_effect(&undoing).answers(204);
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = confirmed(&bed, &["both", "newer"]).await;
    withdraw(&bed.app, batch).await;
    undoing.until_arrived(1).await;
    // Nobody has begun to undo it yet; and whatever its request, it is not a conflict.
    let again = bed.app.insert(thing("both")).await;
    let other = thing("newer").body(json!({ "key": "newer", "plan": 2 }));
    let other = bed.app.insert(other).await;
    until("it has been looked at", async || {
        let call = bed.app.call(again).await;
        if call["reason"] == "waits_for_key" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    undoing.open();
    until_finished(&bed.app, batch, "cancelled").await;
    for (id, key) in [(again, "both"), (other, "newer")] {
        bed.app.until_state(id, "confirmed").await;
        assert_eq!((bed.leaf.effects(key), bed.leaf.standing(key)), (2, 1));
        assert!(bed.app.call(id).await["undone_at"].is_null());
    }
}

/// What it waits for may need a person, who takes longer than a leaf may.
#[tokio::test]
async fn a_call_does_not_give_up_while_the_undoing_that_it_waits_for_waits_for_a_person() {
    let bed = Bed::new().await;
    bed.leaf.always().key("k").method("DELETE").refuses(403);
    let lines = UNDOES.replace("max = \"50ms\"", "max = \"50ms\", give_up_after = \"1s\"");
    let _sidecar = bed.sidecar(&lines).await;
    let batch = confirmed(&bed, &["k"]).await;
    withdraw(&bed.app, batch).await;
    let undoing = until_undoing(&bed, "k", "failed").await;
    let again = bed.app.insert(thing("k")).await;
    holds_for(Duration::from_secs(2), "it waits", async || {
        let call = bed.app.call(again).await;
        if call["state"] == "pending" || call["state"] == "dispatching" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    bed.leaf.behaves();
    let retry = format!("SELECT leafhopper.retry({undoing}, 'the right was given')");
    bed.app.execute(&retry).await;
    until_finished(&bed.app, batch, "cancelled").await;
    bed.app.until_state(again, "confirmed").await;
    assert_eq!((bed.leaf.effects("k"), bed.leaf.standing("k")), (2, 1));
}

/// What somebody has decided to let stand is there for everyone.
#[tokio::test]
async fn a_call_is_confirmed_from_an_effect_that_is_let_stand() {
    let bed = Bed::new().await;
    for key in ["stays", "holds"] {
        bed.leaf.always().key(key).method("DELETE").refuses(403);
    }
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = confirmed(&bed, &["holds", "stays"]).await;
    withdraw(&bed.app, batch).await;
    let undoing = until_undoing(&bed, "stays", "failed").await;
    let waive = format!("SELECT leafhopper.waive({undoing}, 'it stays')");
    bed.app.execute(&waive).await;
    until_undoing(&bed, "holds", "failed").await;
    let again = bed.app.insert(thing("stays")).await;
    bed.app.until_state(again, "confirmed").await;
    until_batch(&bed.app, batch, "compensating").await;
    assert_eq!(bed.leaf.effects("stays"), 1);
}

#[tokio::test]
async fn the_undoing_of_what_was_forgotten_is_not_sent_again_and_holds_nobody_up() {
    let bed = Bed::new().await;
    for key in ["b", "c"] {
        let first = bed.leaf.always().key(key).method("DELETE").times(1);
        first.refuses(422);
    }
    let _sidecar = bed.sidecar(UNDOES).await;
    let batch = confirmed(&bed, &["a", "b", "c"]).await;
    withdraw(&bed.app, batch).await;
    let c = until_undoing(&bed, "c", "failed").await;
    bed.app
        .execute("SELECT leafhopper.forget('leaf', 'c')")
        .await;
    let b = until_undoing(&bed, "b", "failed").await;
    let again = format!("SELECT leafhopper.retry({c}, 'again')");
    let refused = bed.app.client().batch_execute(&again).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(
        refused.message(),
        format!("what call {c} would undo is gone already")
    );
    bed.app
        .execute(&format!("SELECT leafhopper.retry({b}, 'again')"))
        .await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(undone(&bed.leaf), ["c", "b", "b", "a"]);
}

/// Its undoing was added, or sent again, after the transaction's snapshot was taken: passed by, it would undo the key's next
/// effect.
#[tokio::test]
async fn forgetting_by_an_old_sight_of_an_effect_that_is_being_undone_is_refused() {
    for added in [true, false] {
        let bed = Bed::new().await;
        bed.leaf.always().key("k").method("DELETE").refuses(422);
        let _sidecar = bed.sidecar(UNDOES).await;
        let batch = confirmed(&bed, &["k"]).await;
        let old = App::connect(&bed.database.url).await;
        let looks = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM leafhopper.call";
        if added {
            old.execute(looks).await;
            bed.app
                .execute("UPDATE leafhopper.leaf_control SET paused = true")
                .await;
            withdraw(&bed.app, batch).await;
            until_undoing(&bed, "k", "pending").await;
        } else {
            withdraw(&bed.app, batch).await;
            let undoing = until_undoing(&bed, "k", "failed").await;
            old.execute(looks).await;
            bed.app
                .execute(&format!(
                    "UPDATE leafhopper.leaf_control SET paused = true;
                     SELECT leafhopper.retry({undoing}, 'again')"
                ))
                .await;
        }
        let forgets = "SELECT leafhopper.forget('leaf', 'k')";
        let refused = old.client().batch_execute(forgets).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "40001", "{refused:?}");
        old.execute(&format!("ROLLBACK; {forgets}")).await;
        until_finished(&bed.app, batch, "cancelled").await;
        assert_eq!(undone(&bed.leaf).len(), usize::from(!added));
    }
}

#[tokio::test]
async fn the_word_of_an_undoing_that_is_not_there_is_refused() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar(UNDOES).await;
    let early = "SELECT leafhopper.confirm('leaf', 'k:undo:1')";
    let refused = bed.app.client().batch_execute(early).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(
        refused.message(),
        "leaf \"leaf\" has no compensation \"k:undo:1\""
    );
    let batch = confirmed(&bed, &["k"]).await;
    withdraw(&bed.app, batch).await;
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(bed.leaf.standing("k"), 0);
}
