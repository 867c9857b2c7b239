//! Several servers in one string, each with its own fault.

use super::server::{PASSWORD, checked, shared};
use crate::harness::{
    Bed,
    app::keyed,
    leaf::Leaf,
    sidecar::Config,
};

#[tokio::test]
async fn the_first_that_serves_is_used() {
    let server = shared().await;
    // It takes connections and says nothing, as a machine that hangs.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = mute.local_addr().unwrap().port();
    let url = |ports: &str, words: &str| {
        let hosts = vec!["localhost"; ports.split(',').count()].join(",");
        format!(
            "host={hosts} port={ports} dbname=postgres user=anyhow password={PASSWORD} {words}"
        )
    };
    let port = server.port();
    let message = checked(&url(&format!("1,{port}"), "sslmode=require")).await;
    assert!(message.contains("sees TLSv1.3"), "{message}");
    let words = "sslmode=require load_balance_hosts=random";
    let message = checked(&url(&format!("1,{port}"), words)).await;
    assert!(message.contains("sees TLSv1.3"), "{message}");
    drop(mute);
}
