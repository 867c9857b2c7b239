//! Many calls, while the network loses requests and answers and the sidecars are killed.

use std::time::Duration;

use super::{OthersLeaf, Scene};
use crate::harness::{
    proxy::Direction,
    wait::{until, until_within},
};

const ROUNDS: usize = 8;
const CALLS_A_ROUND: usize = 8;

pub(super) async fn storm<L: OthersLeaf>() {
    let scene = Scene::<L>::new().await;
    let mut sidecars = [scene.sidecar().await, scene.sidecar().await];
    let keys: Vec<String> = (0..ROUNDS * CALLS_A_ROUND)
        .map(|n| format!("k{n}"))
        .collect();
    for (round, keys) in keys.chunks(CALLS_A_ROUND).enumerate() {
        let kills = round % 2 == 1;
        match round % 4 {
            0 => scene.way.cut_after(Direction::Down, 40 * round),
            1 => scene.way.hold_answers(),
            2 => scene.way.cut_after(Direction::Up, 200 * round),
            _ => scene.way.stall(),
        }
        let creates = scene.leaf.creates();
        for key in keys {
            scene.app.insert(L::call(key)).await;
        }
        if kills {
            // The leaf is busy with what nobody will hear of, or the requests are still on their way.
            if round % 4 == 1 {
                until("the leaf is asked", async || {
                    let asked = scene.leaf.creates();
                    if asked > creates { Ok(()) } else { Err(asked) }
                })
                .await;
            } else {
                let sent = "SELECT id FROM leafhopper.call WHERE state = 'dispatching'";
                until("something is sent", async || {
                    let none = scene.app.rows(sent).await.is_empty();
                    if none { Err("nothing") } else { Ok(()) }
                })
                .await;
            }
            sidecars[round / 2 % 2].kill();
            scene.way.restore();
            sidecars[round / 2 % 2].restart().await;
        } else {
            until("the network is cut", async || {
                if scene.way.is_cut() {
                    Ok(())
                } else {
                    Err(scene.leaf.creates())
                }
            })
            .await;
            scene.way.restore();
        }
    }
    let limit = Duration::from_secs(150);
    until_within(limit, "all calls are confirmed", async || {
        let sql = "SELECT state, reason, count(*) FROM leafhopper.call GROUP BY 1, 2";
        let states = scene.app.rows(sql).await;
        let done = states.len() == 1 && states[0]["state"] == "confirmed";
        if done { Ok(()) } else { Err(states) }
    })
    .await;
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    scene.assert_each_once(&keys).await;
    let adopted = scene.results().await;
    let adopted = adopted
        .iter()
        .filter(|result| result["source"] == "adopted")
        .count();
    println!(
        "{}: {} calls, {} requests to create, {} effects, {adopted} adopted",
        L::NAME,
        keys.len(),
        scene.leaf.creates(),
        scene.leaf.things().await.len(),
    );
}
