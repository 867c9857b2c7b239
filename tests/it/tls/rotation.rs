//! Certificates of the database that are replaced while a sidecar runs: each new connection takes what is there.

use super::{
    authority::{Authority, words},
    server::{NAME, TlsServer},
};
use crate::harness::{
    database::connect,
    folder::Folder,
    sidecar::{Config, Sidecar},
    wait::until,
};

/// Ends the sidecar's sessions, and waits for new ones: the serial number of the certificate that they show. One that was
/// just being opened may be among them, with what the files held before.
async fn reconnected(server: &TlsServer) -> String {
    let superuser = connect(&server.superuser()).await;
    let sql = "SELECT max(pid) FROM pg_stat_activity WHERE usename = 'certified'";
    let last: Option<i32> = superuser.query_one(sql, &[]).await.unwrap().get(0);
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE usename = 'certified'";
    superuser.query_one(end, &[]).await.unwrap();
    until("there is a new session", async || {
        let sql = "SELECT max(ssl.client_serial::text) FROM pg_stat_activity AS session
                   JOIN pg_stat_ssl AS ssl USING (pid)
                   WHERE usename = 'certified' AND pid > coalesce($1, 0)";
        let row = superuser.query_one(sql, &[&last]).await.unwrap();
        row.get::<_, Option<String>>(0).ok_or("there is none")
    })
    .await
}

/// The same, until the newest of them show this one.
async fn until_shown(server: &TlsServer, serial: &str) {
    until(
        &format!("number {serial} is shown"),
        async || match reconnected(server).await {
            shown if shown == serial => Ok(()),
            other => Err(other),
        },
    )
    .await;
}

fn says(sidecar: &Sidecar, text: &str) -> usize {
    let log = sidecar.log();
    let messages = log.iter().filter_map(|line| line["message"].as_str());
    messages.filter(|message| message.contains(text)).count()
}

#[tokio::test]
async fn new_connections_use_what_the_files_hold_then() {
    const STAY: &str = "the former ones stay";
    let server = TlsServer::start().await;
    let folder = Folder::new();
    let put = |name: &str, text: &str| folder.write(name, text);
    let first = server.clients.signs_number("certified", 11);
    let root = put("root.pem", &server.authority.pem());
    let (cert, key) = (put("cert", &first.cert_pem), put("key", &first.key_pem));
    let url = server.url(
        "certified",
        &format!(
            "sslmode=verify-full sslrootcert={} {}",
            root.display(),
            words(&cert, &key)
        ),
    );
    let starter = Config::new(&url).sidecar();
    let migrated = starter.command(&["migrate"]).await;
    assert!(migrated.status.success(), "{migrated:?}");
    let sidecar = starter.start().await;
    assert_eq!(reconnected(&server).await, "11");

    // Half of a pair is no pair: the former one stays, and it is said once.
    let second = server.clients.signs_number("certified", 12);
    put("cert", &second.cert_pem);
    assert_eq!(reconnected(&server).await, "11");
    assert_eq!(reconnected(&server).await, "11");
    until("it is said", async || match says(&sidecar, STAY) {
        0 => Err(sidecar.log()),
        _ => Ok(()),
    })
    .await;
    assert_eq!(says(&sidecar, STAY), 1, "{:#?}", sidecar.log());
    put("key", &second.key_pem);
    until_shown(&server, "12").await;

    // The server moves to another authority, and the file with it.
    let other = Authority::new("the server's next authority");
    put("root.pem", &other.pem());
    server.shows(&other.signs(NAME));
    server.reload().await;
    assert_eq!(reconnected(&server).await, "12");
    assert_eq!(reconnected(&server).await, "12");
    sidecar.until_ready().await;
    assert_eq!(says(&sidecar, STAY), 1, "{:#?}", sidecar.log());
}
