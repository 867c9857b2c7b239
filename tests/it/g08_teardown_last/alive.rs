//! A request that is still on its way when its call has ended: what it makes must not come after the undoing, nor what it
//! undoes after the effect was made again.

use std::time::Duration;

use uuid::Uuid;

use super::{nothing_is_undone_for, undone, unsealed, until_finished, withdraw};
use crate::harness::{
    Bed,
    app::{Call, call},
    leaf::Gate,
    proxy::Proxy,
    sidecar::Config,
    wait::{holds_for, until, until_within},
};

/// A leaf whose connections can be reset: it works on at what it has been sent.
async fn behind_a_proxy(bed: &Bed, lines: &str) -> (Proxy, Config) {
    let way = Proxy::in_front_of(&bed.leaf.url()).await;
    let url = way.url(&bed.leaf.url());
    let config = Config::new(&bed.database.url).leaf("leaf", &url, lines);
    (way, config)
}

/// An idempotent method of a leaf that can't be asked is sent again. Such a leaf settles in half a minute.
async fn resends(bed: &Bed) -> (Proxy, Config) {
    let lines = "retry = { initial = \"20ms\", max = \"50ms\" }\n\
         compensate = { method = \"DELETE\", path = \"{{ call.path }}\" }";
    behind_a_proxy(bed, lines).await
}

/// Longer than that.
const PATIENCE: Duration = Duration::from_secs(60);

fn put(key: &str) -> Call {
    call("leaf")
        .method("PUT")
        .path(&format!("/effects/{key}"))
        .key(key)
}

async fn until_confirmed_by_the_second_request(bed: &Bed, way: &Proxy, batch: Uuid, gate: &Gate) {
    bed.leaf
        .always()
        .key("slow")
        .method("PUT")
        .times(1)
        .waits_before_the_effect(gate)
        .answers(201);
    let id = bed.app.insert(put("slow").batch(batch)).await;
    gate.until_arrived(1).await;
    way.reset();
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.leaf.effects("slow"), 1);
}

#[tokio::test]
async fn an_effect_is_undone_after_the_last_request_that_could_make_it_again() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    let (way, config) = resends(&bed).await;
    let _sidecar = config.start().await;
    let batch = unsealed(&bed.app).await;
    until_confirmed_by_the_second_request(&bed, &way, batch, &gate).await;
    withdraw(&bed.app, batch).await;
    nothing_is_undone_for(&bed, Duration::from_millis(400)).await;
    // The first request lands.
    gate.open();
    until("it has", async || match bed.leaf.effects("slow") {
        2 => Ok(()),
        effects => Err(effects),
    })
    .await;
    until_within(PATIENCE, "it is undone", async || {
        let requests = bed.leaf.requests("slow");
        if requests.len() == 3 {
            Ok(())
        } else {
            Err(requests)
        }
    })
    .await;
    until_finished(&bed.app, batch, "cancelled").await;
    let last = bed.leaf.requests("slow").pop().unwrap();
    assert_eq!(last.method, "DELETE");
    assert_eq!(undone(&bed.leaf).len(), 1);
}

#[tokio::test]
async fn an_effect_is_made_again_after_the_last_request_that_could_undo_it() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    let (way, config) = resends(&bed).await;
    let _sidecar = config.start().await;
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(put("again").batch(batch)).await;
    bed.app.until_state(id, "confirmed").await;
    bed.leaf
        .always()
        .key("again")
        .method("DELETE")
        .times(1)
        .waits_before_the_effect(&gate)
        .answers(204);
    withdraw(&bed.app, batch).await;
    gate.until_arrived(1).await;
    way.reset();
    // Sent again, it says that it is undone.
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(bed.leaf.standing("again"), 0);
    let again = bed.app.insert(put("again")).await;
    holds_for(
        Duration::from_millis(400),
        "it is not made yet",
        async || {
            let standing = bed.leaf.standing("again");
            if standing == 0 {
                Ok(())
            } else {
                Err(bed.app.call(again).await)
            }
        },
    )
    .await;
    gate.open();
    until_within(PATIENCE, "it is made again", async || {
        let call = bed.app.call(again).await;
        if call["state"] == "confirmed" {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    assert_eq!(bed.leaf.standing("again"), 1);
    assert_eq!(
        bed.app.call(again).await["attempts"],
        1,
        "a wait spends none"
    );
}

#[tokio::test]
async fn a_word_for_a_call_whose_request_is_on_its_way_is_undone_after_that() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    let lines = "in_doubt = \"park\"\n\
         compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";
    let (way, config) = behind_a_proxy(&bed, lines).await;
    let _sidecar = config.probe("leaf", "settle = \"5s\"").start().await;
    bed.leaf
        .always()
        .key("told")
        .method("PUT")
        .times(1)
        .waits_before_the_effect(&gate)
        .answers(201);
    let batch = unsealed(&bed.app).await;
    let id = bed.app.insert(put("told").batch(batch)).await;
    gate.until_arrived(1).await;
    way.reset();
    bed.app.until_state(id, "parked").await;
    bed.leaf.has_already("told");
    bed.app
        .execute("SELECT leafhopper.confirm('leaf', 'told', 200, NULL)")
        .await;
    withdraw(&bed.app, batch).await;
    nothing_is_undone_for(&bed, Duration::from_millis(250)).await;
    gate.open();
    until_finished(&bed.app, batch, "cancelled").await;
    assert_eq!(bed.leaf.requests("told").pop().unwrap().method, "DELETE");
}
