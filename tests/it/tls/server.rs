//! A PostgreSQL with `ssl = on`, and what `leafhopper check` says of it.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
};

use leafhopper::demo::cluster::{Cluster, Durability};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::authority::{Authority, Pair};
use crate::harness::{
    database::{connect, options},
    sidecar::Config,
};

/// The name that the server's certificate is for. Nobody resolves it: `hostaddr` says where it is.
pub(crate) const NAME: &str = "db.leafhopper.example";

/// The password of each role.
pub(crate) const PASSWORD: &str = "open-sesame";

/// Who may come how: with TLS only, in clear only, with a certificate, with SCRAM.
const HBA: &str = "\
hostssl   all certified 127.0.0.1/32 cert
hostssl   all shows     127.0.0.1/32 scram-sha-256 clientcert=verify-ca
hostssl   all tls_only  127.0.0.1/32 scram-sha-256
hostssl   all plain     127.0.0.1/32 password
hostnossl all clear_only 127.0.0.1/32 scram-sha-256
host      all anyhow    127.0.0.1/32 scram-sha-256
";

static SHARED: OnceCell<TlsServer> = OnceCell::const_new();

/// A server of its own.
pub(crate) struct TlsServer {
    cluster: Cluster,
    /// Signs the server's certificate.
    pub(crate) authority: Authority,
    /// Signs certificates of clients that the server trusts.
    pub(crate) clients: Authority,
}

/// One for all tests that do not change it. It is never dropped; its watchdog ends it with this process.
pub(crate) async fn shared() -> &'static TlsServer {
    SHARED.get_or_init(TlsServer::start).await
}

impl TlsServer {
    /// One of the test's own.
    pub(crate) async fn start() -> Self {
        let options = options(Durability::Unsynced);
        let started = tokio::task::spawn_blocking(|| Cluster::start(options)).await;
        let cluster = started.unwrap().unwrap();
        let server = Self {
            cluster,
            authority: Authority::new("the server's authority"),
            clients: Authority::new("the clients' authority"),
        };
        let superuser = connect(&server.superuser()).await;
        let mut sql = String::from("SET password_encryption = 'scram-sha-256';");
        for role in [
            "certified",
            "shows",
            "tls_only",
            "plain",
            "clear_only",
            "anyhow",
        ] {
            sql.push_str(&format!(
                "CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{PASSWORD}';"
            ));
        }
        superuser.batch_execute(&sql).await.unwrap();
        server.put("clients.pem", &server.clients.pem());
        server.put(
            "pg_hba.conf",
            &format!("host all postgres all password\n{HBA}"),
        );
        server.shows(&server.authority.signs(NAME));
        for setting in [
            "ssl_cert_file = 'server.pem'",
            "ssl_key_file = 'server.key'",
            "ssl_ca_file = 'clients.pem'",
            "ssl = on",
        ] {
            let sql = format!("ALTER SYSTEM SET {setting}");
            superuser.batch_execute(&sql).await.unwrap();
        }
        server.reload().await;
        server
    }

    /// Gives the server this certificate, from its next reload on.
    pub(crate) fn shows(&self, pair: &Pair) {
        self.put("server.pem", &pair.cert_pem);
        self.put("server.key", &pair.key_pem);
    }

    /// Has it read its files, and waits until it has.
    pub(crate) async fn reload(&self) {
        let superuser = connect(&self.superuser()).await;
        let sql = "SELECT pg_conf_load_time(), pg_reload_conf()";
        let before = superuser.query_one(sql, &[]).await.unwrap();
        let before: std::time::SystemTime = before.get(0);
        crate::harness::wait::until("the server has read its files", async || {
            // Only a new session tells: the postmaster has forked it.
            let session = connect(&self.superuser()).await;
            let row = session.query_one("SELECT pg_conf_load_time()", &[]).await;
            match row.unwrap().get::<_, std::time::SystemTime>(0) > before {
                true => Ok(()),
                false => Err("it has not"),
            }
        })
        .await;
    }

    /// Its superuser's connection string, which asks for no TLS.
    pub(crate) fn superuser(&self) -> String {
        self.superuser_of("postgres")
    }

    /// The same for another of its databases.
    pub(crate) fn superuser_of(&self, database: &str) -> String {
        format!("{}?sslmode=disable", self.cluster.url(database))
    }

    /// An empty database of the test's own.
    pub(crate) async fn database(&self, name: &str) {
        let superuser = connect(&self.superuser()).await;
        let sql = format!("CREATE DATABASE {name}");
        superuser.batch_execute(&sql).await.unwrap();
    }

    /// A connection string for a role, with further words.
    pub(crate) fn url(&self, role: &str, words: &str) -> String {
        self.url_of(NAME, role, words)
    }

    /// The same by another name.
    pub(crate) fn url_of(&self, name: &str, role: &str, words: &str) -> String {
        format!(
            "host={name} hostaddr=127.0.0.1 port={} dbname=postgres user={role} \
             password={PASSWORD} {words}",
            self.cluster.port()
        )
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.cluster.port()
    }

    /// `sslrootcert` of its authority.
    pub(crate) fn root(&self) -> String {
        format!("sslrootcert={}", self.authority.file().display())
    }

    /// Writes a file of the server's, which nobody else may read.
    fn put(&self, name: &str, text: &str) {
        let data = self.cluster.folder().join("data");
        let owner = std::fs::metadata(&data).unwrap();
        let (path, draft) = (data.join(name), data.join(format!("{name}.draft")));
        std::fs::write(&draft, text).unwrap();
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(&draft, Some(owner.uid()), Some(owner.gid())).unwrap();
        std::fs::rename(&draft, &path).unwrap();
    }
}

/// What `leafhopper check` says of the server that this leads to. No text of it may hold the password.
pub(crate) async fn checked(url: &str) -> String {
    checked_at(url, None).await
}

/// The same for a user with this folder as home.
pub(crate) async fn checked_at(url: &str, home: Option<&Path>) -> String {
    let mut sidecar = Config::new(url).sidecar();
    let nowhere = Path::new("/nonexistent");
    let home = home.unwrap_or(nowhere).display().to_string();
    sidecar = sidecar.environment("HOME", &home);
    // None of libpq's own is read.
    for (name, value) in [
        ("PGSSLMODE", "verify-full"),
        ("PGHOST", "nowhere.example"),
        ("PGPORT", "1"),
        ("PGSSLROOTCERT", "/nonexistent"),
        ("PGPASSWORD", "wrong"),
        ("PGCHANNELBINDING", "require"),
        ("PGTARGETSESSIONATTRS", "read-only"),
    ] {
        sidecar = sidecar.environment(name, value);
    }
    let output = sidecar.command(&["check", "--json"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(PASSWORD), "{text}");
    let findings: Vec<Value> = serde_json::from_str(&text).unwrap();
    let of_server = findings.iter().find(|finding| {
        finding["subject"] == "server" || finding["check"] == "configuration" && is_fault(finding)
    });
    let finding = of_server.unwrap_or_else(|| panic!("{findings:#?}"));
    finding["message"].as_str().unwrap().to_owned()
}

fn is_fault(finding: &Value) -> bool {
    finding["status"] == "fail"
}
