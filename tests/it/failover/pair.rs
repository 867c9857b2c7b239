//! A primary and its synchronous standby, on PostgreSQL's own replication; and the ways in which they change places.

use std::{
    fs,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use leafhopper::demo::cluster::{Cluster, Durability};
use serde_json::json;

use crate::harness::{app::App, database::options, wait::until};

const DATABASE: &str = "app";

/// One of the two servers; it keeps its port in whatever part it plays.
struct Node {
    cluster: Arc<Mutex<Cluster>>,
    port: u16,
    folder: PathBuf,
}

/// Both. Which of them takes writes changes.
pub(super) struct Pair {
    primary: Node,
    standby: Node,
    /// Of the first primary: its copies have its password.
    url: String,
    first_port: u16,
}

impl Pair {
    /// The primary with an empty database, and a standby that each commit waits for.
    pub(super) async fn start() -> Self {
        let (primary, standby) = tokio::join!(Node::start(), Node::start());
        let url = primary
            .blocking(|cluster| {
                cluster.create_database(DATABASE, None).unwrap();
                cluster.url(DATABASE)
            })
            .await;
        let first_port = primary.port;
        let pair = Self {
            primary,
            standby,
            url,
            first_port,
        };
        pair.join_the_other().await;
        pair
    }

    /// With the servers always in the same order.
    pub(super) fn url(&self) -> String {
        let (one, other) = (self.primary.port, self.standby.port);
        let others = one + other - self.first_port;
        let first = format!("127.0.0.1:{}", self.first_port);
        self.url
            .replace(&first, &format!("{first},127.0.0.1:{others}"))
    }

    fn url_of(&self, node: &Node) -> String {
        let first = format!("127.0.0.1:{}", self.first_port);
        self.url
            .replace(&first, &format!("127.0.0.1:{}", node.port))
    }

    /// The server that takes writes.
    pub(super) async fn connect(&self) -> App {
        App::connect(&self.url_of(&self.primary)).await
    }

    /// The server that was the primary before, or is a standby.
    pub(super) async fn connect_to_the_other(&self) -> App {
        App::connect(&self.url_of(&self.standby)).await
    }

    /// The primary is gone at once, as with its machine, and the standby takes its place.
    pub(super) async fn kill_and_promote(&mut self) {
        let killed = |cluster: &mut Cluster| cluster.stop_immediate().unwrap();
        self.primary.blocking(killed).await;
        self.promote().await;
    }

    /// The primary takes no more writes, and all who are connected to it stay so; the standby takes its place.
    pub(super) async fn fence_and_promote(&mut self) {
        let old = self.connect().await;
        old.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            .await;
        old.execute("SELECT pg_reload_conf()").await;
        self.promote().await;
    }

    async fn promote(&mut self) {
        self.connect_to_the_other()
            .await
            .execute("SELECT pg_promote()")
            .await;
        std::mem::swap(&mut self.primary, &mut self.standby);
    }

    /// The server that was killed comes back as a standby, of nobody: it answers reads with what it had.
    pub(super) async fn bring_the_other_back(&self) {
        fs::write(self.standby.folder.join("data/standby.signal"), "").unwrap();
        self.standby
            .blocking(|cluster| cluster.restart().unwrap())
            .await;
    }

    /// The other becomes the primary's standby, with a new copy of it, and each commit waits for it again.
    pub(super) async fn join_the_other(&self) {
        let source = format!("{}?application_name=standby", self.url_of(&self.primary));
        let data = self.standby.folder.join("data");
        let owner = fs::metadata(&self.standby.folder).unwrap();
        let program = options(Durability::Unsynced)
            .binaries
            .program("pg_basebackup");
        let copied = move |cluster: &mut Cluster| {
            cluster.stop_immediate().unwrap();
            fs::remove_dir_all(&data).unwrap();
            let mut copy = Command::new(program);
            copy.args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]);
            copy.arg("--dbname").arg(source).arg("--pgdata").arg(data);
            copy.current_dir("/").stdin(Stdio::null());
            if rustix::process::geteuid().is_root() {
                copy.uid(owner.uid()).gid(owner.gid());
            }
            let output = copy.output().unwrap();
            assert!(output.status.success(), "pg_basebackup: {output:?}");
            cluster.restart().unwrap();
        };
        self.standby.blocking(copied).await;
        let primary = self.connect().await;
        primary
            .execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            .await;
        primary.execute("SELECT pg_reload_conf()").await;
        until("the standby is synchronous", async || {
            let sql = "SELECT state, sync_state FROM pg_stat_replication";
            let seen = primary.rows(sql).await;
            let wanted = json!({ "state": "streaming", "sync_state": "sync" });
            if seen == [wanted] { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

impl Node {
    async fn start() -> Self {
        let start = || Cluster::start(options(Durability::Unsynced)).unwrap();
        let cluster = tokio::task::spawn_blocking(start).await.unwrap();
        Self {
            port: cluster.port(),
            folder: cluster.folder().to_path_buf(),
            cluster: Arc::new(Mutex::new(cluster)),
        }
    }

    /// Does this without keeping the test's own tasks waiting.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Cluster) -> T + Send + 'static,
    ) -> T {
        let cluster = Arc::clone(&self.cluster);
        tokio::task::spawn_blocking(move || work(&mut cluster.lock().unwrap()))
            .await
            .unwrap()
    }
}
