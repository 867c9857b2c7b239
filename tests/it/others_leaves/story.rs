//! What is done to each of them, and what must come of it.

use serde_json::json;

use super::{OthersLeaf, Scene, caldav, cloud, rest, storm};
use crate::harness::{proxy::Direction, wait::until};

/// The same tests for a leaf.
macro_rules! shown_on {
    ($module:ident, $leaf:ty) => {
        mod $module {
            use super::*;

            #[tokio::test]
            #[ignore = "needs servers from PyPI and npm: make leaves"]
            async fn one_key_is_one_effect() {
                one_key::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers from PyPI and npm: make leaves"]
            async fn a_lost_answer_is_found_out() {
                lost_answer::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers from PyPI and npm: make leaves"]
            async fn a_lost_request_is_sent_again() {
                lost_request::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers from PyPI and npm: make leaves"]
            async fn a_request_that_arrives_in_part_has_its_effect_once() {
                part_of_a_request::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers from PyPI and npm: make leaves"]
            async fn what_a_killed_sidecar_did_is_found_by_another() {
                killed::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers from PyPI and npm: make leaves"]
            async fn what_exists_is_ours_or_not() {
                exists::<$leaf>().await;
            }

            #[tokio::test]
            #[ignore = "needs servers from PyPI and npm: make leaves"]
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

async fn lost_answer<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let _sidecar = scene.sidecar().await;
    // Nothing of the answer arrives, or a part of its head, or less than its body.
    for (number, bytes) in [0, 20, 600].into_iter().enumerate() {
        let key = ["none", "little", "much"][number];
        scene.way.cut_after(Direction::Down, bytes);
        let id = scene.app.insert(L::call(key)).await;
        until("the answer is cut, or short", async || {
            let state = scene.app.state(id).await;
            let goes_on = scene.way.is_cut() || state == "confirmed";
            if goes_on { Ok(()) } else { Err(state) }
        })
        .await;
        let was_cut = scene.way.is_cut();
        scene.way.restore();
        scene.app.until_state(id, "confirmed").await;
        let source = scene.source(key).await;
        println!(
            "{}: {bytes} bytes of the answer: {source}, {}",
            L::NAME,
            scene.history(id).await
        );
        if bytes < 600 {
            assert!(was_cut);
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
    scene.way.cut_after(Direction::Up, 0);
    let id = scene.app.insert(L::call("a")).await;
    until("the request is cut", async || {
        if scene.way.is_cut() {
            Ok(())
        } else {
            Err(scene.app.call(id).await)
        }
    })
    .await;
    assert_eq!(scene.leaf.creates(), 0);
    scene.way.restore();
    let call = scene.app.until_state(id, "confirmed").await;
    println!("{}: {}", L::NAME, scene.history(id).await);
    assert_eq!(call["attempts"], 2);
    assert_eq!(scene.leaf.creates(), 1);
    assert_eq!(scene.source("a").await, "response");
    scene.assert_each_once(&["a"]).await;
}

async fn part_of_a_request<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let _sidecar = scene.sidecar().await;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (key, bytes) in keys.into_iter().zip((1..).step_by(90)) {
        scene.way.cut_after(Direction::Up, bytes);
        let id = scene.app.insert(L::call(key)).await;
        until("the request is cut, or short", async || {
            let call = scene.app.call(id).await;
            let goes_on = scene.way.is_cut() || call["state"] == "confirmed";
            if goes_on { Ok(()) } else { Err(call) }
        })
        .await;
        let was_cut = scene.way.is_cut();
        scene.way.restore();
        scene.app.until_state(id, "confirmed").await;
        let history = scene.history(id).await;
        println!(
            "{}: {bytes} bytes of the request, cut: {was_cut}: {history}",
            L::NAME
        );
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
    assert_eq!(scene.app.state(id).await, "dispatching");
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
    let Some(status) = L::REFUSES else {
        // It makes another one, or replaces what is there.
        scene.app.until_state(theirs, "confirmed").await;
        assert_eq!(scene.leaf.things().await["theirs"].len(), 1);
        return;
    };
    let call = scene.app.until_state(theirs, "parked").await;
    assert_eq!(call["reason"], "exists_unmatched");
    assert_eq!(
        scene.history(theirs).await,
        format!("exists {status}, probe_absent 200")
    );

    let ours = scene.app.insert(L::call("ours")).await;
    scene.app.until_state(ours, "confirmed").await;
    let forget = format!("SELECT leafhopper.forget('{}', 'ours')", L::NAME);
    scene.app.execute(&forget).await;
    let again = scene.app.insert(L::call("ours")).await;
    scene.app.until_state(again, "confirmed").await;
    assert_eq!(scene.history(again).await, format!("exists {status}"));
    let results = scene.app.results(L::NAME, "ours").await;
    assert_eq!(
        (results.len(), &results[1]["source"]),
        (2, &json!("adopted"))
    );
    let things = scene.leaf.things().await;
    assert_eq!(things["ours"], [L::thing(&scene.results().await[0])]);
}
