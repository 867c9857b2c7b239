//! The schema's migrations: embedded, forward only, each in a transaction of its own, safe when raced.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Client, error::SqlState};

use super::{Store, StoreError, column, connect::Connect};
use crate::domain::schedule::Schedule;

/// A step of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// 1, 2, 3 …
    pub version: i32,
    /// What it is about.
    pub name: &'static str,
    /// Its statements.
    pub sql: &'static str,
}

/// All migrations, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "tables",
        sql: include_str!("../../sql/migrations/0001_tables.sql"),
    },
    Migration {
        version: 2,
        name: "trigger_and_view",
        sql: include_str!("../../sql/migrations/0002_trigger_and_view.sql"),
    },
    Migration {
        version: 3,
        name: "functions",
        sql: include_str!("../../sql/migrations/0003_functions.sql"),
    },
    Migration {
        version: 4,
        name: "jobs",
        sql: include_str!("../../sql/migrations/0004_jobs.sql"),
    },
];

const SCHEMA_EXISTS: &str = include_str!("../../sql/queries/schema_exists.sql");
const SCHEMA_VERSION: &str = include_str!("../../sql/queries/schema_version.sql");

/// The schema that this program is written for.
pub const KNOWN: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// One at a time over all processes: an advisory lock of the transaction, which a pooler can't strand.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext('leafhopper.migrate'))";

/// Whoever comes behind a migration that waits for a lock waits with it, producers too. So it waits for a moment, gives up
/// all that it holds, lets them pass, and tries again.
const LOCK_WAIT: &str = "SET LOCAL lock_timeout = '250ms'";

/// Between two tries.
const PAUSES: Schedule = Schedule {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(5),
    multiplier: 1.5,
    jitter: 0.3,
};

/// A transaction that is open for longer than this has to end by itself, or by somebody's hand.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why the schema could not be brought to where this program needs it.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database holds a schema of a later version.
    #[error(
        "the database's schema is version {found}, this leafhopper knows version {KNOWN}: \
         use a leafhopper that is at least as new as the one that migrated it"
    )]
    Newer {
        /// The version in the database.
        found: i32,
    },
    /// The schema is not there yet, or older.
    #[error(
        "the database's schema is version {found}, this leafhopper needs {KNOWN}: run `leafhopper migrate`"
    )]
    Older {
        /// The version in the database; 0 where there is none.
        found: i32,
    },
    /// There is no role of this name to grant to.
    #[error("there is no role \"{0}\" in this cluster: create it first (CREATE ROLE … LOGIN)")]
    NoRole(String),
    /// There is no such function to grant.
    #[error("there is no function \"{0}\" to grant: one of {GRANTABLE:?}", GRANTABLE = super::roles::GRANTABLE)]
    NoFunction(String),
    /// The database did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Applies what is missing; gives the applied migrations, none where all were there.
///
/// # Errors
/// The schema is newer than this program, or a statement failed; then that migration left nothing behind.
pub async fn migrate(connect: &Connect) -> Result<Vec<&'static Migration>, MigrateError> {
    apply(connect, MIGRATIONS).await
}

/// Applies what is missing of `migrations`, which are all that there are.
///
/// # Errors
/// The schema is newer than the last of them, or a statement failed; then that migration left nothing behind.
pub async fn apply<'a>(
    connect: &Connect,
    migrations: &'a [Migration],
) -> Result<Vec<&'a Migration>, MigrateError> {
    let client = open(connect).await?;
    let mut applied = Vec::new();
    let begun = Instant::now();
    let mut failures = 0;
    loop {
        match step(&client, migrations).await {
            Ok(None) => return Ok(applied),
            Ok(Some(migration)) => {
                applied.push(migration);
                failures = 0;
            }
            Err(MigrateError::Store(error))
                if is_in_the_way(&error) && begun.elapsed() < PATIENCE =>
            {
                run(&client, "take a migration back", "ROLLBACK").await?;
                failures += 1;
                tracing::warn!("a lock is in the way of a migration, which tries again: {error}");
                tokio::time::sleep(PAUSES.delay(failures, None)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Applies the next one that is missing, where there is one.
async fn step<'a>(
    client: &Client,
    migrations: &'a [Migration],
) -> Result<Option<&'a Migration>, MigrateError> {
    run(client, "begin a migration", "BEGIN").await?;
    run(client, "wait for other migrations", LOCK).await?;
    run(client, "bound the wait for locks", LOCK_WAIT).await?;
    let found = version(client).await?;
    if migrations.last().is_some_and(|last| found > last.version) {
        return Err(MigrateError::Newer { found });
    }
    let next = migrations
        .iter()
        .find(|migration| migration.version > found);
    if let Some(next) = next {
        run(client, "apply a migration", next.sql).await?;
    }
    run(client, "commit a migration", "COMMIT").await?;
    Ok(next)
}

/// Somebody holds a lock that it needs, or needs one that it holds.
fn is_in_the_way(error: &StoreError) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::T_R_DEADLOCK_DETECTED
    })
}

/// A connection of its own for schema work.
pub(super) async fn open(connect: &Connect) -> Result<Client, StoreError> {
    const OPERATION: &str = "connect to migrate";
    let opened = connect.open_patiently(None).await;
    let (client, connection) =
        opened.map_err(|error| StoreError::not_opened(OPERATION, connect, error))?;
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the client; a command has no tasks to track"
    )]
    drop(tokio::spawn(connection));
    Ok(client)
}

pub(super) async fn run(
    client: &Client,
    operation: &'static str,
    sql: &str,
) -> Result<(), StoreError> {
    client
        .batch_execute(sql)
        .await
        .map_err(|error| StoreError::statement(operation, error))
}

async fn version(client: &Client) -> Result<i32, StoreError> {
    const OPERATION: &str = "read the schema's version";
    let exists = client
        .query_typed(SCHEMA_EXISTS, &[])
        .await
        .map_err(|error| StoreError::statement(OPERATION, error))?;
    if !exists.first().is_some_and(|row| row.get::<_, bool>(0)) {
        return Ok(0);
    }
    let rows = client
        .query_typed(SCHEMA_VERSION, &[])
        .await
        .map_err(|error| StoreError::statement(OPERATION, error))?;
    rows.first()
        .map_or(Ok(0), |row| column(OPERATION, row, "version"))
}

impl Store {
    /// Checks that this program can work with the database's schema.
    ///
    /// # Errors
    /// It is missing, older, or newer in a way that this program can't work with.
    pub async fn check_schema(&self) -> Result<i32, MigrateError> {
        const OPERATION: &str = "read the schema's version";
        let exists = self.query(OPERATION, SCHEMA_EXISTS, &[]).await?;
        if !exists.first().is_some_and(|row| row.get::<_, bool>(0)) {
            return Err(MigrateError::Older { found: 0 });
        }
        let rows = self.query(OPERATION, SCHEMA_VERSION, &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        let found: i32 = column(OPERATION, row, "version")?;
        let oldest_reader: i32 = column(OPERATION, row, "oldest_reader")?;
        if oldest_reader > KNOWN {
            Err(MigrateError::Newer { found })
        } else if found < KNOWN {
            Err(MigrateError::Older { found })
        } else {
            Ok(found)
        }
    }
}
