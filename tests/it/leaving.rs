//! An instance that stops in good order leaves nothing behind that others would wait for.

use crate::harness::Bed;

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
