//! An instance that stops in good order leaves nothing behind that others would wait for.

use std::{net::SocketAddr, time::Duration};

use serde_json::json;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::harness::{Bed, app::keyed, wait::until};

#[tokio::test]
async fn an_instance_that_has_stopped_is_no_member_any_more() {
    let bed = Bed::new().await;
    let config = bed.config("").dispatch("lease = \"1s\"");
    for round in 0..3 {
        let mut sidecars = Vec::new();
        for _ in 0..3 {
            sidecars.push(config.start().await);
        }
        // Each that goes makes the others look at their membership at once, also while they go themselves.
        for sidecar in &mut sidecars {
            sidecar.signal(rustix::process::Signal::TERM);
        }
        for sidecar in &mut sidecars {
            assert!(sidecar.exit().await.success());
        }
        let left = bed.app.rows("SELECT name FROM leafhopper.instance").await;
        assert!(left.is_empty(), "in round {round}: {left:?}");
    }
}

/// An address where connections are neither taken nor refused, for as long as the second value lives.
async fn black_hole() -> (SocketAddr, impl Sized) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    let brief = Duration::from_millis(200);
    while let Ok(stream) = timeout(brief, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
    }
    (address, (listener, waiting))
}

#[tokio::test]
async fn what_was_still_connecting_at_the_end_of_the_grace_is_known_not_to_be_sent() {
    let bed = Bed::new().await;
    let (address, _full) = black_hole().await;
    let url = format!("http://{address}");
    let config = bed
        .config("")
        .leaf("hole", &url, "timeout = \"60s\"\nconnect_timeout = \"30s\"")
        .dispatch("shutdown_grace = \"500ms\"");
    let mut sidecar = config.start().await;
    let id = bed.app.insert(keyed("hole", "k")).await;
    until("it connects", async || {
        let state = bed.app.state(id).await;
        if state == "dispatching" {
            Ok(())
        } else {
            Err(state)
        }
    })
    .await;
    sidecar.stop().await;
    let call = bed.app.call(id).await;
    assert_eq!(
        (&call["state"], &call["attempts"]),
        (&json!("pending"), &json!(0)),
        "{call}"
    );
    let attempts = bed.app.attempts(id).await;
    assert_eq!(attempts[0]["class"], "retry", "{attempts:?}");
}
