//! What goes wrong in a storm: to each sidecar and its way to the database, to the server, and to the way to
//! the leaves.

use std::{
    os::unix::process::ExitStatusExt as _,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use leafhopper::demo::cluster::Cluster;
use rustix::process::Signal;
use tokio::time::Instant;

use super::{World, leaves};
use crate::harness::{
    folder::Folder,
    proxy::{Direction, Proxy},
    sidecar::Sidecar,
    wait::fault_lasts,
};

/// How long it is one sidecar's turn.
const TURN_SECONDS: u64 = 5;

fn within(chance: &mut fastrand::Rng, milliseconds: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(chance.u64(milliseconds))
}

/// Runs a sidecar and torments it, until the faults are over. The first one has a folder that survives it.
/// Gives the sidecar, running and no more harmed, with what it needs.
pub(super) async fn torment(
    world: Arc<World>,
    number: u64,
    leaf_url: String,
) -> (Sidecar, Proxy, Option<Folder>) {
    let mut chance = world.plan.chance(10 + number);
    let way = Proxy::in_front_of(&world.url).await;
    let mut config = leaves::config(&way.url(&world.url), &leaf_url);
    let state = (number == 0).then(Folder::new);
    if let Some(folder) = &state {
        config = config.dispatch(&format!("state_dir = \"{}\"", folder.path().display()));
    }
    let starter = config.sidecar();
    let mut sidecar = starter
        .environment("LEAFHOPPER_LOG_LEVEL", "error,leafhopper::app=info")
        .launch();
    let counts = &world.counts;
    let started = Instant::now();
    while !world.is_over() {
        // They are tormented in turns, so that there is one that sees the other vanish.
        if started.elapsed().as_secs() / TURN_SECONDS % 2 != number {
            fault_lasts(Duration::from_millis(100)).await;
            continue;
        }
        fault_lasts(within(&mut chance, 50..900)).await;
        match chance.u32(..100) {
            0..78 => {
                kill(&world, &mut sidecar);
                fault_lasts(within(&mut chance, 0..200)).await;
                sidecar.relaunch();
            }
            78..88 => {
                sidecar.signal(Signal::STOP);
                counts.stops.fetch_add(1, Ordering::SeqCst);
                fault_lasts(within(&mut chance, 100..1500)).await;
                if chance.u32(..3) == 0 {
                    kill(&world, &mut sidecar);
                    sidecar.relaunch();
                } else {
                    sidecar.signal(Signal::CONT);
                }
            }
            fault => {
                counts.database_cuts.fetch_add(1, Ordering::SeqCst);
                cut(&mut chance, &way, fault % 4, 1500).await;
            }
        }
    }
    (sidecar, way, state)
}

fn kill(world: &World, sidecar: &mut Sidecar) {
    let status = sidecar.kill();
    assert_eq!(status.signal(), Some(9), "it ended by itself: {status}");
    world.counts.kills.fetch_add(1, Ordering::SeqCst);
}

/// Cuts a network in one of four ways, and mends it.
async fn cut(chance: &mut fastrand::Rng, way: &Proxy, how: u32, longest: u64) {
    match how {
        0 => way.cut(),
        1 => way.stall(),
        2 => way.cut_after(Direction::Up, chance.usize(0..20_000)),
        _ => way.cut_after(Direction::Down, chance.usize(0..20_000)),
    }
    fault_lasts(within(chance, 20..longest)).await;
    way.restore();
}

/// Crashes the server and cuts the way to the leaves, until the faults are over; gives both, mended.
pub(super) async fn weather(
    world: Arc<World>,
    mut server: Cluster,
    way_to_leaf: Proxy,
) -> (Cluster, Proxy) {
    let mut chance = world.plan.chance(20);
    while !world.is_over() {
        for _ in 0..chance.u32(3..8) {
            fault_lasts(within(&mut chance, 300..2500)).await;
            world.counts.leaf_cuts.fetch_add(1, Ordering::SeqCst);
            match chance.u32(..20) {
                // An outage, in which breakers open.
                how @ 0..4 => cut(&mut chance, &way_to_leaf, how, 700).await,
                4..10 => {
                    way_to_leaf.stall();
                    fault_lasts(within(&mut chance, 20..700)).await;
                    way_to_leaf.restore();
                }
                // Whatever is on its way is reset, and new connections are taken at once.
                _ => way_to_leaf.reset(),
            }
        }
        let down = within(&mut chance, 50..800);
        server = tokio::task::spawn_blocking(move || {
            server.stop_immediate().unwrap();
            server
        })
        .await
        .unwrap();
        fault_lasts(down).await;
        server = tokio::task::spawn_blocking(move || {
            server.restart().unwrap();
            server
        })
        .await
        .unwrap();
        world.counts.server_crashes.fetch_add(1, Ordering::SeqCst);
    }
    (server, way_to_leaf)
}
