//! A database of its own for each test, cloned from a template that is migrated once.
//!
//! The server is a throw-away cluster of this process, or the one whose superuser `TEST_DATABASE_URL` names.
//! A database, not a schema: notifications and advisory locks are database-wide, and both matter here.
//! `LEAFHOPPER_TEST_KEEP=1` keeps the databases, and the cluster until the next one starts.

use std::{
    future::Future,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use leafhopper::demo::{
    binaries::Binaries,
    cluster::{Cluster, Durability, Options},
};
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;

use super::checks;

/// The name of every database of a test starts with this; the process id follows.
const PREFIX: &str = "leafhopper_test_";

/// Of the roles that tests log in as.
pub(crate) const ROLE_PASSWORD: &str = "known-to-tests";

/// PostgreSQL cuts longer names.
const NAME_BYTES_MAX: usize = 63;

static SERVER: OnceCell<Server> = OnceCell::const_new();
static TEMPLATE: OnceCell<String> = OnceCell::const_new();
static CLONES: AtomicU32 = AtomicU32::new(0);

enum Server {
    /// Ours. It is never dropped; its watchdog ends it with this process.
    Own(Cluster),
    /// Somebody else's.
    Given(String),
}

/// A database that is dropped with this value, after the checks.
pub(crate) struct Database {
    /// The superuser's connection string.
    pub(crate) url: String,
    /// Its name.
    pub(crate) name: String,
    /// Whether the schema is there to be checked.
    migrated: bool,
}

impl Database {
    /// A clone of the migrated template.
    pub(crate) async fn new() -> Self {
        let template = TEMPLATE.get_or_init(|| template("template", migrate)).await;
        let mut database = Self::cloned_from(template).await;
        database.migrated = true;
        database
    }

    /// One without the schema.
    pub(crate) async fn empty() -> Self {
        Self::cloned_from("template0").await
    }

    /// A clone of a template that [`template`] made; of another one, the checks are not run.
    pub(crate) async fn cloned_from(template: &str) -> Self {
        let server = server().await;
        let number = CLONES.fetch_add(1, Ordering::Relaxed);
        let name = own_name(&format!("{number}_{}", test_name()));
        let url = server.url(&name);
        server
            .execute(&format!(
                "CREATE DATABASE \"{name}\" TEMPLATE \"{template}\""
            ))
            .await;
        Self {
            url,
            name,
            migrated: false,
        }
    }

    /// The connection string of a login that may do what a sidecar needs, and nothing else.
    pub(crate) fn sidecar_url(&self) -> String {
        assert!(self.migrated, "only the template grants it something");
        as_role(&self.url, &sidecar_role())
    }

    /// A superuser's connection.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        connect(&self.url).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (keep, failing) = (keep(), std::thread::panicking());
        if keep {
            eprintln!("the database of this test: {}", self.url);
        } else if failing {
            eprintln!("LEAFHOPPER_TEST_KEEP=1 keeps the database of this test");
        }
        let check = (self.migrated && !failing).then(|| self.url.clone());
        let name = self.name.clone();
        // The test's own runtime can't be waited on from here.
        let end = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                if let Some(url) = check {
                    checks::run(&connect(&url).await).await;
                }
                if !keep {
                    let drop = format!("DROP DATABASE \"{name}\" WITH (FORCE)");
                    server().await.execute(&drop).await;
                }
            });
        });
        if let Err(panic) = end.join()
            && !failing
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Whether databases outlive their tests.
pub(crate) fn keep() -> bool {
    std::env::var_os("LEAFHOPPER_TEST_KEEP").is_some_and(|value| value == "1")
}

/// Connects, and drives the connection for as long as the client lives.
pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Makes a database that `migrate` fills, given its connection string, and that can be cloned.
pub(crate) async fn template<F: Future<Output = ()>>(
    purpose: &str,
    migrate: impl FnOnce(String) -> F,
) -> String {
    let server = server().await;
    let name = own_name(purpose);
    server
        .execute(&format!("CREATE DATABASE \"{name}\" TEMPLATE template0"))
        .await;
    migrate(server.url(&name)).await;
    name
}

/// The same place for another login of the tests.
pub(crate) fn as_role(url: &str, role: &str) -> String {
    let mut url = reqwest::Url::parse(url).unwrap();
    url.set_username(role).unwrap();
    url.set_password(Some(ROLE_PASSWORD)).unwrap();
    url.into()
}

/// A role belongs to the whole server: this one to this process.
fn sidecar_role() -> String {
    own_name("sidecar")
}

/// How a cluster for tests is started.
pub(crate) fn options(durability: Durability) -> Options {
    let named = std::env::var_os("LEAFHOPPER_POSTGRES_BIN").map(PathBuf::from);
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binaries = Binaries::find(named.as_deref(), &[manifest]).unwrap_or_else(|e| panic!("{e}"));
    Options {
        binaries,
        durability,
        // Apps may use two-phase commit, which is off by default.
        settings: vec![("max_prepared_transactions".to_owned(), "20".to_owned())],
    }
}

/// `leafhopper migrate --grant-sidecar`, as a user runs it.
async fn migrate(url: String) {
    let role = sidecar_role();
    let create = format!("CREATE ROLE \"{role}\" LOGIN PASSWORD '{ROLE_PASSWORD}'");
    server().await.execute(&create).await;
    let config = std::env::temp_dir().join(own_name("migrate.toml"));
    std::fs::write(&config, format!("[database]\nurl = {url:?}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_leafhopper"));
    command.args(["migrate", "--grant-sidecar", &role]);
    command.arg("--config").arg(&config);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    std::fs::remove_file(&config).unwrap();
    assert!(output.status.success(), "leafhopper migrate: {output:#?}");
}

async fn server() -> &'static Server {
    SERVER.get_or_init(Server::ready).await
}

impl Server {
    async fn ready() -> Self {
        let server = match std::env::var("TEST_DATABASE_URL") {
            Ok(url) => Self::Given(url),
            Err(_) => {
                let options = options(Durability::Unsynced);
                let started = tokio::task::spawn_blocking(|| Cluster::start(options)).await;
                let started = started.unwrap();
                let mut cluster = started.unwrap_or_else(|error| panic!("{error:#?}\n{error}"));
                if keep() {
                    cluster.outlive_owner();
                }
                Self::Own(cluster)
            }
        };
        server.sweep().await;
        server
    }

    fn url(&self, database: &str) -> String {
        match self {
            Self::Own(cluster) => cluster.url(database),
            Self::Given(url) => with_database(url, database),
        }
    }

    async fn execute(&self, sql: &str) {
        let client = connect(&self.url("postgres")).await;
        client
            .batch_execute(sql)
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    /// Drops the databases of test processes that are gone, then their roles.
    async fn sweep(&self) {
        let client = connect(&self.url("postgres")).await;
        for (list, drop) in [
            (
                "SELECT datname::text FROM pg_database WHERE datname",
                "DATABASE",
            ),
            ("SELECT rolname::text FROM pg_roles WHERE rolname", "ROLE"),
        ] {
            let named = format!("{list} LIKE '{PREFIX}%'");
            for row in client.query(&named, &[]).await.unwrap() {
                let name: &str = row.get(0);
                let owner = name.trim_start_matches(PREFIX).split('_').next().unwrap();
                if !Path::new("/proc").join(owner).exists() {
                    let force = if drop == "DATABASE" {
                        " WITH (FORCE)"
                    } else {
                        ""
                    };
                    let drop = format!("DROP {drop} IF EXISTS \"{name}\"{force}");
                    client.batch_execute(&drop).await.unwrap();
                }
            }
        }
    }
}

fn own_name(rest: &str) -> String {
    let mut name = format!("{PREFIX}{}_{rest}", std::process::id());
    name.truncate(NAME_BYTES_MAX);
    name
}

/// The test's path; libtest names the thread after it, and `#[tokio::test]` stays on that thread.
fn test_name() -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let name = name.rsplit("::").next().unwrap_or(name);
    name.chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect()
}

/// The same server's connection string for another database.
fn with_database(url: &str, database: &str) -> String {
    let mut url = reqwest::Url::parse(url).expect("TEST_DATABASE_URL is a postgres:// url");
    url.set_path(database);
    url.into()
}
