//! The systems that are compared: how each is set up, loaded, started, asked.

use std::{path::PathBuf, time::Duration};

use tokio::process::Command;

use crate::{bench::Bench, worker::Worker};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum System {
    Leafhopper,
    /// `graphile_worker` of the Rust registry.
    GraphileRust,
    /// graphile-worker of npm.
    GraphileNode,
    PgBoss,
}

/// How a worker is to run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) concurrency: usize,
    /// It will be killed, and its successor is to take over soon.
    pub(crate) killed: bool,
    /// For leafhopper: further leaves, by name and base url.
    pub(crate) leaves: Vec<(String, String)>,
}

impl Run {
    pub(crate) fn at_once(concurrency: usize) -> Self {
        Self {
            concurrency,
            killed: false,
            leaves: Vec::new(),
        }
    }
}

/// A body of 285 bytes as the leaf gets it; `i` is the call's id in the leaf's record.
pub(crate) fn body(id: &str) -> String {
    format!("jsonb_build_object('i', {id}, 'pad', repeat('x', 268 - length({id}::text)))")
}

impl System {
    pub(crate) const ALL: [Self; 4] = [
        Self::Leafhopper,
        Self::GraphileRust,
        Self::GraphileNode,
        Self::PgBoss,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Leafhopper => "leafhopper",
            Self::GraphileRust => "graphile_worker",
            Self::GraphileNode => "graphile-worker",
            Self::PgBoss => "pg-boss",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        self == Self::Leafhopper
    }

    /// The short name in names of databases.
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Self::Leafhopper => "ours",
            Self::GraphileRust => "gw_rust",
            Self::GraphileNode => "gw_node",
            Self::PgBoss => "pg_boss",
        }
    }

    /// Puts calls with these ids into its tables, as its own enqueueing would, but many at once.
    pub(crate) fn load(self, from: u64, to: u64) -> String {
        let ids = format!("generate_series({from}, {to}) i");
        self.insert(&body("i"), &ids)
    }

    fn insert(self, body: &str, ids: &str) -> String {
        match self {
            Self::Leafhopper => format!(
                "INSERT INTO leafhopper.outbox (leaf, path, body) SELECT 'bench', '/', {body} FROM {ids}"
            ),
            Self::GraphileRust | Self::GraphileNode => format!(
                "INSERT INTO graphile_worker._private_tasks (identifier) VALUES ('call') ON CONFLICT DO NOTHING;
                 INSERT INTO graphile_worker._private_jobs (task_id, payload, run_at, max_attempts, priority)
                 SELECT t.id, {body}::json, now(), 25, 0
                   FROM graphile_worker._private_tasks t, {ids} WHERE t.identifier = 'call'"
            ),
            Self::PgBoss => format!(
                "INSERT INTO pgboss.job_common (name, data, priority, start_after, created_on, expire_seconds, deletion_seconds,
                        keep_until, retry_limit, retry_delay, retry_backoff, policy, heartbeat_seconds, blocked, blocking,
                        pending_dependencies)
                 SELECT q.name, {body}, 0, pgboss.job_now(), pgboss.job_now(), q.expire_seconds, q.deletion_seconds,
                        pgboss.job_now() + q.retention_seconds * interval '1s', q.retry_limit, q.retry_delay, q.retry_backoff,
                        q.policy, q.heartbeat_seconds, false, false, 0
                   FROM pgboss.queue q, {ids} WHERE q.name = 'call'"
            ),
        }
    }

    /// Puts the one call $1 into its tables, through what it offers to SQL.
    pub(crate) fn enqueue(self) -> String {
        let body = body("$1::bigint");
        match self {
            Self::Leafhopper => self.insert(&body, "(SELECT) one"),
            Self::GraphileRust | Self::GraphileNode => {
                format!("SELECT graphile_worker.add_job('call', {body}::json)")
            }
            // pg-boss has no function for SQL: this is its insert of one job, with the notification that goes with it.
            Self::PgBoss => format!(
                "WITH ins AS ({} RETURNING id) \
                 SELECT pg_notify('pgboss_' || left(encode(sha224('pgboss'::bytea), 'hex'), 24), 'call') FROM ins",
                self.insert(&body, "(SELECT) one")
            ),
        }
    }

    /// Is nothing left to be done?
    pub(crate) fn is_drained(self) -> &'static str {
        match self {
            Self::Leafhopper => "SELECT NOT EXISTS (SELECT FROM leafhopper.dispatch)",
            Self::GraphileRust | Self::GraphileNode => {
                "SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)"
            }
            Self::PgBoss => {
                "SELECT NOT EXISTS (SELECT FROM pgboss.job_common WHERE state < 'completed' AND name = 'call')"
            }
        }
    }

    /// How many calls are not done.
    pub(crate) fn unfinished(self) -> &'static str {
        match self {
            Self::Leafhopper => "SELECT count(*) FROM leafhopper.dispatch",
            Self::GraphileRust | Self::GraphileNode => {
                "SELECT count(*) FROM graphile_worker._private_jobs"
            }
            Self::PgBoss => {
                "SELECT count(*) FROM pgboss.job_common WHERE state < 'completed' AND name = 'call'"
            }
        }
    }

    /// Frees what dead workers hold, as it would itself after four hours.
    pub(crate) fn release(self) -> Option<&'static str> {
        let free = "UPDATE graphile_worker._private_jobs SET locked_at = NULL, locked_by = NULL WHERE locked_at IS NOT NULL";
        (self == Self::GraphileNode).then_some(free)
    }

    /// The table that an open snapshot is to have seen.
    pub(crate) fn queue(self) -> &'static str {
        match self {
            Self::Leafhopper => "leafhopper.dispatch",
            Self::GraphileRust | Self::GraphileNode => "graphile_worker._private_jobs",
            Self::PgBoss => "pgboss.job_common",
        }
    }

    /// What is missing for it to run.
    pub(crate) fn missing(self, peers: &std::path::Path) -> Option<String> {
        let (program, _) = self.program(peers)?;
        let packages = peers.join(self.name()).join("installed");
        let node = self != Self::GraphileRust;
        let there = program.exists() && (!node || packages.exists());
        (!there).then(|| "not installed: benches/peers/install says why".to_owned())
    }

    fn program(self, peers: &std::path::Path) -> Option<(PathBuf, Vec<PathBuf>)> {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        match self {
            Self::Leafhopper => None,
            Self::GraphileRust => Some((
                peers.join("graphile_worker/release/peer-graphile-worker"),
                vec![],
            )),
            Self::GraphileNode | Self::PgBoss => Some((
                peers.join("node-to-use"),
                vec![here.join(self.name()).join("worker.cjs")],
            )),
        }
    }

    fn command(self, bench: &Bench, database: &str, run: &Run, mode: &str) -> Command {
        let (program, arguments) = self.program(&bench.peers).expect("a peer");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("DATABASE_URL", bench.cluster.url(database))
            .env("LEAF_URL", format!("{}/", bench.leaf.url()))
            .env("CONCURRENCY", run.concurrency.to_string())
            .env("MODE", mode)
            .env("NODE_ENV", "production")
            .env(
                "NODE_PATH",
                bench.peers.join(self.name()).join("node_modules"),
            );
        command
    }

    /// Makes its tables.
    pub(crate) async fn migrate(self, bench: &Bench, database: &str) -> anyhow::Result<()> {
        let run = Run::at_once(64);
        let command = match self {
            Self::Leafhopper => bench.sidecar(database, &run, "migrate").0,
            _ => self.command(bench, database, &run, "migrate"),
        };
        Worker::start(bench, self.name(), command, None)?
            .finished(Duration::from_mins(1))
            .await
    }

    /// Starts its worker.
    pub(crate) fn start(self, bench: &Bench, database: &str, run: &Run) -> anyhow::Result<Worker> {
        let mode = if run.killed { "recover" } else { "run" };
        let (command, port) = match self {
            Self::Leafhopper => {
                let (command, port) = bench.sidecar(database, run, "run");
                (command, Some(port))
            }
            _ => (self.command(bench, database, run, mode), None),
        };
        Worker::start(bench, self.name(), command, port)
    }
}
