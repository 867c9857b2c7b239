//! What all measurements share: the server, the leaf, the databases, the sidecar's configuration.

use std::{
    collections::HashSet,
    fmt::Write as _,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use leafhopper::demo::{
    binaries::Binaries,
    cluster::{Cluster, Durability, Options},
};
use tokio::process::Command;
use tokio_postgres::{Client, NoTls};

use crate::{
    arguments::Arguments,
    leaf::{Leaf, Record},
    system::{Run, System},
    worker::Worker,
};

/// No single wait takes longer; what does is reported as failed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) leaf: Leaf,
    /// Results and logs.
    pub(crate) folder: PathBuf,
    /// Configurations and what instances keep; of this run alone.
    runs: PathBuf,
    pub(crate) peers: PathBuf,
    pub(crate) arguments: Arguments,
    /// Those that are asked for and there.
    pub(crate) systems: Vec<System>,
    pub(crate) admin: Client,
    templates: Mutex<HashSet<String>>,
    number: AtomicU64,
}

/// A database of its own for one run.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) client: Client,
}

impl Bench {
    pub(crate) async fn start(
        arguments: Arguments,
        folder: PathBuf,
        peers: PathBuf,
        settings: Vec<(String, String)>,
    ) -> anyhow::Result<Self> {
        let cluster = start_cluster(settings)?;
        let admin = connect(&cluster.url("postgres")).await?;
        let systems = System::ALL.into_iter();
        let systems = systems.filter(|system| arguments.asks_for(system.name()));
        let systems = systems.filter(|system| system.missing(&peers).is_none());
        Ok(Self {
            systems: systems.collect(),
            runs: folder.join("runs"),
            cluster,
            leaf: Leaf::start(),
            folder,
            peers,
            arguments,
            admin,
            templates: Mutex::default(),
            number: AtomicU64::new(0),
        })
    }

    /// An empty database with the system's tables.
    pub(crate) async fn migrated(&self, system: System) -> anyhow::Result<Database> {
        let template = self.template(system).await?;
        self.copy(&template).await
    }

    /// A database with calls 1 to `calls` waiting, vacuumed and on the disk.
    pub(crate) async fn loaded(&self, system: System, calls: u64) -> anyhow::Result<Database> {
        let template = format!("{}_{calls}", self.template(system).await?);
        if !self.templates.lock().unwrap().contains(&template) {
            let database = self.migrated(system).await?;
            // One insert of very many rows keeps them all in memory for the trigger.
            let mut from = 1;
            while from <= calls {
                let to = calls.min(from + 199_999);
                database
                    .client
                    .batch_execute(&system.load(from, to))
                    .await?;
                from = to + 1;
            }
            self.keep(database, &template).await?;
        }
        self.copy(&template).await
    }

    /// Makes a database the template of this name.
    pub(crate) async fn keep(&self, database: Database, template: &str) -> anyhow::Result<()> {
        database.client.batch_execute("VACUUM ANALYZE").await?;
        let name = database.name.clone();
        drop(database);
        let rename = format!("ALTER DATABASE {name} RENAME TO {template}");
        self.alone(&name, &rename).await?;
        self.templates.lock().unwrap().insert(template.to_owned());
        Ok(())
    }

    /// Drops the template of a backlog of this length.
    pub(crate) async fn forget(&self, system: System, calls: u64) {
        let template = format!("template_{}_{calls}", system.slug());
        self.forget_template(&template).await;
    }

    pub(crate) async fn forget_template(&self, template: &str) {
        self.templates.lock().unwrap().remove(template);
        let statement = format!("DROP DATABASE IF EXISTS {template} WITH (FORCE)");
        self.admin.batch_execute(&statement).await.ok();
    }

    pub(crate) fn has(&self, template: &str) -> bool {
        self.templates.lock().unwrap().contains(template)
    }

    async fn template(&self, system: System) -> anyhow::Result<String> {
        let template = format!("template_{}", system.slug());
        if !self.has(&template) {
            self.admin
                .batch_execute(&format!("CREATE DATABASE {template}"))
                .await?;
            system.migrate(self, &template).await.context("migrate")?;
            self.templates.lock().unwrap().insert(template.clone());
        }
        Ok(template)
    }

    pub(crate) async fn copy(&self, template: &str) -> anyhow::Result<Database> {
        let number = self.number.fetch_add(1, Relaxed);
        let name = format!("run_{number}");
        let version: i32 = self
            .admin
            .query_one("SELECT current_setting('server_version_num')::int", &[])
            .await?
            .get(0);
        // It checkpoints, too: so the run does not pay for what was loaded.
        let how = if version >= 150_000 {
            "STRATEGY file_copy"
        } else {
            ""
        };
        let create = format!("CREATE DATABASE {name} TEMPLATE {template} {how}");
        self.alone(template, &create).await?;
        let client = connect(&self.cluster.url(&name)).await?;
        Ok(Database { name, client })
    }

    /// A statement that wants nobody to be connected to that database.
    async fn alone(&self, database: &str, statement: &str) -> anyhow::Result<()> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            // Its own clients are on their way out; autovacuum may be in.
            self.admin
                .execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
                    &[&database],
                )
                .await?;
            match self.admin.batch_execute(statement).await {
                Err(error)
                    if error.code().is_some_and(|code| code.code() == "55006")
                        && Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                other => return other.context(statement.to_owned()),
            }
        }
    }

    pub(crate) async fn drop(&self, database: Database) {
        let name = database.name.clone();
        drop(database);
        let statement = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        self.admin.batch_execute(&statement).await.ok();
    }

    /// The sidecar with a configuration of its own, and the port that it will answer at.
    pub(crate) fn sidecar(&self, database: &str, run: &Run, word: &str) -> (Command, u16) {
        let port = free_port();
        let mut config = format!(
            "[database]\nurl = \"{}?sslmode=disable\"\n[listen]\naddress = \"127.0.0.1:{port}\"\n",
            self.cluster.url(database),
        );
        if run.killed {
            // As somebody would set it who has a disk that survives: the restarted instance ends its own lease.
            let kept = self.runs.join(format!("state-{database}"));
            std::fs::create_dir_all(&kept).unwrap();
            writeln!(
                config,
                "[dispatch]\nlease = \"2s\"\nstate_dir = \"{}\"",
                kept.display()
            )
            .unwrap();
        }
        let bench = ("bench".to_owned(), self.leaf.url());
        for (name, url) in std::iter::once(&bench).chain(&run.leaves) {
            writeln!(
                config,
                "[leaf.{name}]\nbase_url = \"{url}\"\nconcurrency = {}",
                run.concurrency
            )
            .unwrap();
        }
        if run.killed {
            // A doubt is looked at when the attempt can't be alive any more: the leaf takes 20 ms.
            config.push_str(
                "timeout = \"2s\"\n[leaf.bench.probe]\npath = \"/effects/{{ call.body.i }}\"\nfound = \"response.body\"\nsettle = \"1s\"\n",
            );
        }
        let file = self.runs.join(format!("{database}-{port}.toml"));
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_leafhopper"));
        command.arg("--config").arg(&file).arg(word);
        (command, port)
    }

    /// Waits until the leaf has got so many requests, and then until the system has recorded the last.
    ///
    /// Only the leaf's counter is looked at until then, so that looking costs the systems nothing.
    pub(crate) async fn until_drained(
        &self,
        record: &Record,
        calls: u64,
        database: &Client,
        drained: &str,
        worker: &mut [Worker],
    ) -> anyhow::Result<()> {
        self.until_arrived(record, calls, worker).await?;
        let until = Instant::now() + PATIENCE;
        while !database.query_one(drained, &[]).await?.get::<_, bool>(0) {
            if Instant::now() > until {
                bail!("the last calls are not recorded after {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    pub(crate) async fn until_arrived(
        &self,
        record: &Record,
        calls: u64,
        worker: &mut [Worker],
    ) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        while record.arrived.load(Relaxed) < calls {
            for worker in &mut *worker {
                worker.runs()?;
            }
            if Instant::now() > until {
                let arrived = record.arrived.load(Relaxed);
                bail!("{arrived} of {calls} calls have arrived after {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

fn start_cluster(settings: Vec<(String, String)>) -> anyhow::Result<Cluster> {
    tokio::task::block_in_place(|| {
        let binaries = Binaries::find(None, &[Path::new(env!("CARGO_MANIFEST_DIR"))])?;
        Ok(Cluster::start(Options {
            binaries,
            durability: Durability::Synced,
            settings,
        })?)
    })
}

pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}
