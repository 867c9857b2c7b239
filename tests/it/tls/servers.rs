//! Several servers in one string, and all kinds of connections that a sidecar opens.

use std::time::Duration;

use tokio::time::Instant;

use super::server::{PASSWORD, TlsServer, checked, shared};
use crate::harness::{
    app::{App, keyed},
    database::connect,
    leaf::Leaf,
    sidecar::Config,
    wait::until,
};

/// A string of servers on this machine, one for each port.
fn local(ports: &[u16], words: &str) -> String {
    let hosts = vec!["localhost"; ports.len()].join(",");
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!(
        "host={hosts} port={} dbname=postgres user=tls_only password={PASSWORD} {words}",
        ports.join(",")
    )
}

#[tokio::test]
async fn the_first_that_serves_is_used() {
    let port = shared().await.port();
    // Takes connections and says nothing, as a machine that hangs.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hangs = mute.local_addr().unwrap().port();
    for words in [
        "",
        "load_balance_hosts=random",
        "target_session_attrs=primary",
    ] {
        let words = format!("sslmode=require connect_timeout=10 {words}");
        let message = checked(&local(&[1, port], &words)).await;
        assert!(message.contains("sees TLSv1.3"), "{words}: {message}");
    }
    let begun = Instant::now();
    let message = checked(&local(&[hangs, port], "sslmode=require connect_timeout=3")).await;
    assert!(message.contains("sees TLSv1.3"), "{message}");
    assert!(
        begun.elapsed() >= Duration::from_secs(3),
        "it was not tried"
    );
    // Without a word of it, one that hangs costs two seconds.
    let message = checked(&local(&[hangs, port], "sslmode=require")).await;
    assert!(message.contains("sees TLSv1.3"), "{message}");
}

#[tokio::test]
async fn where_none_serves_each_says_why() {
    let port = shared().await.port();
    let message = checked(&local(
        &[1, port],
        "sslmode=require connect_timeout=10 password=wrong",
    ))
    .await;
    for said in [
        "localhost:1: ",
        "refused",
        &format!("localhost:{port}: FATAL: password authentication failed"),
    ] {
        assert!(message.contains(said), "{said:?} is not in {message}");
    }
}

/// Sessions of the sidecar in this database, and how many of them speak TLS.
async fn sessions(server: &TlsServer, database: &str) -> (i64, i64) {
    let superuser = connect(&server.superuser()).await;
    let sql = "SELECT count(*), count(*) FILTER (WHERE ssl.ssl)
               FROM pg_stat_activity AS session JOIN pg_stat_ssl AS ssl USING (pid)
               WHERE session.datname = $1 AND session.application_name = 'leafhopper'";
    let row = superuser.query_one(sql, &[&database]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn migrations_notifications_and_statements_are_verified_alike() {
    let server = shared().await;
    server.database("verified").await;
    // Who comes without TLS, or without looking at the certificate, is refused.
    let words = format!("dbname=verified sslmode=verify-full {}", server.root());
    let url = server.url("tls_only", &words);
    let leaf = Leaf::start().await;
    let config = Config::new(&url).leaf("leaf", &leaf.url(), "");
    let starter = config.sidecar();
    let migrated = starter.command(&["migrate"]).await;
    assert!(migrated.status.success(), "{migrated:?}");
    let sidecar = starter.start().await;
    let app = App::connect(&server.superuser_of("verified")).await;
    until("it listens", async || {
        let superuser = connect(&server.superuser_of("verified")).await;
        let sql = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = 'verified' AND query LIKE '%LISTEN leafhopper_wake%'";
        let row = superuser.query_one(sql, &[]).await.unwrap();
        match row.get::<_, i64>(0) {
            0 => Err("it does not"),
            _ => Ok(()),
        }
    })
    .await;
    let id = app.insert(keyed("leaf", "k")).await;
    app.until_state(id, "confirmed").await;
    let (all, encrypted) = sessions(server, "verified").await;
    assert!(all >= 2 && all == encrypted, "{encrypted} of {all}");
    drop(sidecar);
}
