//! What is done to each of them, and what must come of it.

use serde_json::json;

use super::{OthersLeaf, Scene, Taken, caldav, cloud, rest, storm, webdav};
use crate::harness::{proxy::Direction, wait::until};

/// The same tests for a leaf.
macro_rules! shown_on {
    ($module:ident, $leaf:ty) => {
        mod $module {
            use super::*;

            #[tokio::test]
            #[ignore = "needs servers of others: make leaves"]
            async fn one_key_is_one_effect() {
                one_key::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers of others: make leaves"]
            async fn a_lost_answer_is_found_out() {
                lost_answer::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers of others: make leaves"]
            async fn a_lost_request_is_sent_again() {
                lost_request::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers of others: make leaves"]
            async fn a_request_that_arrives_in_part_has_its_effect_once() {
                part_of_a_request::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers of others: make leaves"]
            async fn what_a_killed_sidecar_did_is_found_by_another() {
                killed::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers of others: make leaves"]
            async fn what_exists_is_ours_or_not() {
                exists::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers of others: make leaves"]
            async fn a_storm_leaves_each_effect_once() {
                storm::storm::<$leaf>().await;
            }
        }
    };
}

shown_on!(json_server_items, rest::Items);
shown_on!(json_server_named_items, rest::NamedItems);
shown_on!(moto_clusters, cloud::Clusters);
shown_on!(moto_users, cloud::Users);
shown_on!(radicale_events, caldav::Events);
shown_on!(radicale_new_events, caldav::NewEvents);
shown_on!(apache_documents, webdav::Documents);

async fn one_key<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let _sidecar = scene.sidecar().await;
    for key in ["a", "b", "a"] {
        let id = scene.app.insert(L::call(key)).await;
        scene.app.until_state(id, "confirmed").await;
    }
    assert_eq!(scene.leaf.creates(), 2);
    for key in ["a", "b"] {
        assert_eq!(scene.source(key).await, "response");
    }
    scene.assert_each_once(&["a", "b"]).await;
}

/// Inserts a call while the network loses what goes that way after so many bytes; it's there again once that has
/// happened, or the call has ended without.
async fn cut_off<L: OthersLeaf>(
    scene: &Scene<L>,
    key: &str,
    direction: Direction,
    bytes: usize,
) -> i64 {
    scene.way.cut_after(direction, bytes);
    let id = scene.app.insert(L::call(key)).await;
    until("it is cut, or short", async || {
        let call = scene.app.call(id).await;
        let goes_on = scene.way.is_cut() || call["state"] == "confirmed";
        if goes_on { Ok(()) } else { Err(call) }
    })
    .await;
    scene.way.restore();
    id
}

async fn lost_answer<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let _sidecar = scene.sidecar().await;
    // Nothing of the answer arrives, a part of its head, or perhaps less than its body.
    for (key, bytes) in [("none", 0), ("little", 20), ("much", 600)] {
        let id = cut_off(&scene, key, Direction::Down, bytes).await;
        scene.app.until_state(id, "confirmed").await;
        let (source, history) = (scene.source(key).await, scene.app.history(id).await);
        println!(
            "{}: {bytes} bytes of the answer: {source}, {history}",
            L::NAME
        );
        if bytes < 600 {
            assert_eq!(history, "in_doubt");
            assert_eq!(source, if L::RESENDS { "response" } else { "adopted" });
        }
    }
    if !L::RESENDS {
        assert_eq!(scene.leaf.creates(), 3);
    }
    scene.assert_each_once(&["none", "little", "much"]).await;
}

async fn lost_request<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let _sidecar = scene.sidecar().await;
    let id = cut_off(&scene, "a", Direction::Up, 0).await;
    let call = scene.app.until_state(id, "confirmed").await;
    assert_eq!(call["attempts"], 2);
    assert_eq!(scene.leaf.creates(), 1);
    assert_eq!(scene.source("a").await, "response");
    scene.assert_each_once(&["a"]).await;
}

async fn part_of_a_request<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let _sidecar = scene.sidecar().await;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (key, bytes) in keys.into_iter().zip((1..).step_by(60)) {
        let id = cut_off(&scene, key, Direction::Up, bytes).await;
        scene.app.until_state(id, "confirmed").await;
        let history = scene.app.history(id).await;
        println!("{}: {bytes} bytes of the request: {history}", L::NAME);
    }
    scene.assert_each_once(&keys).await;
}

async fn killed<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let mut first = scene.sidecar().await;
    scene.way.hold_answers();
    let id = scene.app.insert(L::call("a")).await;
    until("the leaf has it", async || {
        let things = scene.leaf.things().await;
        if things.contains_key("a") {
            Ok(())
        } else {
            Err(things)
        }
    })
    .await;
    first.kill();
    scene.way.restore();
    let _second = scene.sidecar().await;
    let call = scene.app.until_state(id, "confirmed").await;
    let (attempts, creates, source) = if L::RESENDS {
        (2, 2, "response")
    } else {
        (1, 1, "adopted")
    };
    assert_eq!(call["attempts"], attempts);
    assert_eq!(scene.leaf.creates(), creates);
    assert_eq!(scene.source("a").await, source);
    scene.assert_each_once(&["a"]).await;
}

/// What somebody else made under that name, and what we made and have no record of.
async fn exists<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let _sidecar = scene.sidecar().await;
    scene.leaf.has_theirs("theirs").await;
    let theirs = scene.app.insert(L::call("theirs")).await;
    let status = match L::TAKEN {
        Taken::Asked(status) => status,
        Taken::Another => {
            scene.app.until_state(theirs, "confirmed").await;
            return scene.assert_each_once_beside(&["theirs"], 1).await;
        }
        Taken::Replaced => {
            scene.app.until_state(theirs, "confirmed").await;
            return scene.assert_each_once(&["theirs"]).await;
        }
        Taken::No => {
            let call = scene.app.until_state(theirs, "failed").await;
            assert_eq!(call["reason"], "rejected");
            return scene.assert_each_once_beside(&[], 1).await;
        }
    };
    let call = scene.app.until_state(theirs, "parked").await;
    assert_eq!(call["reason"], "exists_unmatched");
    assert_eq!(
        scene.app.history(theirs).await,
        format!("exists {status}, probe_absent 200")
    );

    let ours = scene.app.insert(L::call("ours")).await;
    scene.app.until_state(ours, "confirmed").await;
    let forget = format!("SELECT leafhopper.forget('{}', 'ours')", L::NAME);
    scene.app.execute(&forget).await;
    let again = scene.app.insert(L::call("ours")).await;
    scene.app.until_state(again, "confirmed").await;
    assert_eq!(scene.app.history(again).await, format!("exists {status}"));
    let results = scene.app.results(L::NAME, "ours").await;
    assert_eq!(
        (results.len(), &results[1]["source"]),
        (2, &json!("adopted"))
    );
    let things = scene.leaf.things().await;
    assert_eq!(things["ours"], [L::thing(&scene.results().await[0])]);
}

/// The control: these tests see a duplicate where there is one.
#[tokio::test]
#[ignore = "needs servers of others: make leaves"]
async fn a_leaf_that_is_wrongly_said_to_know_keys_does_it_twice() {
    let toml = format!(
        "[leaf.items]\nbase_url = {:?}\ntimeout = \"1s\"\n\
         [leaf.items.idempotency]\nheader = \"Idempotency-Key\"\nwindow = \"1h\"",
        rest::Items::URL
    );
    let scene = Scene::<rest::Items>::configured(&toml).await;
    let _sidecar = scene.sidecar().await;
    let id = cut_off(&scene, "a", Direction::Down, 0).await;
    scene.app.until_state(id, "confirmed").await;
    assert_eq!(scene.leaf.creates(), 2);
    assert_eq!(scene.leaf.things().await["a"].len(), 2);
}
