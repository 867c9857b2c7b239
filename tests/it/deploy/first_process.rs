//! As the first process of a PID namespace, as in a container: the kernel drops signals that it does not handle.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::Instant;

use super::namespace::{child_of, unshare};
use crate::harness::{
    Bed,
    app::call,
    leaf::Gate,
    sidecar::{Config, Starter},
    wait::until,
};

#[tokio::test]
async fn sigterm_stops_it_and_a_second_one_forces_it() {
    let Some(unshare) = unshare() else {
        return;
    };
    let bed = Bed::new().await;
    let config = bed.config("");
    for signal in [Signal::TERM, Signal::INT] {
        let mut sidecar = config.sidecar().under(unshare).start().await;
        let first = child_of(sidecar.pid()).await;
        let status = format!("/proc/{}/status", first.as_raw_nonzero());
        let status = std::fs::read_to_string(status).unwrap();
        let inside = status.lines().find(|line| line.starts_with("NSpid:"));
        assert!(inside.unwrap().ends_with("\t1"), "{inside:?}");
        let told = Instant::now();
        kill_process(first, signal).unwrap();
        assert_eq!(sidecar.exit().await.code(), Some(0));
        let took = told.elapsed();
        assert!(took < Duration::from_secs(8), "{took:?}");
    }

    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    let mut sidecar = config.sidecar().under(unshare).start().await;
    let first = child_of(sidecar.pid()).await;
    bed.app.insert(call("leaf").body(json!({}))).await;
    gate.until_arrived(1).await;
    kill_process(first, Signal::TERM).unwrap();
    sidecar.until_log("stopping: 1 calls").await;
    kill_process(first, Signal::TERM).unwrap();
    assert_eq!(sidecar.exit().await.code(), Some(1));
}

#[tokio::test]
async fn another_command_can_be_ended_too() {
    let Some(unshare) = unshare() else {
        return;
    };
    let bed = Bed::new().await;
    let starter: Starter = Config::new(&bed.database.url).sidecar().under(unshare);
    let mut watching = starter.piped(&["calls", "--watch", "--json"]);
    // It has looked once, so it is there.
    let mut said = [0; 1];
    let mut stdout = watching.stdout.take().unwrap();
    tokio::task::spawn_blocking(move || std::io::Read::read_exact(&mut stdout, &mut said))
        .await
        .unwrap()
        .unwrap();
    let first = child_of(Pid::from_child(&watching)).await;
    kill_process(first, Signal::TERM).unwrap();
    let ended = until("it ends", async || watching.try_wait().unwrap().ok_or(())).await;
    assert_eq!(ended.code(), Some(128 + 15));
}
