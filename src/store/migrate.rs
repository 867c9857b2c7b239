//! The schema's migrations: embedded, forward only, each in a transaction of its own, safe when raced.

use tokio_postgres::Client;

use super::{Store, StoreError, column, connect::Connect};

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
pub const KNOWN: i32 = 4;

/// One at a time over all processes: an advisory lock of the transaction, which a pooler can't strand.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext('leafhopper.migrate'))";

/// No migration waits for a lock that producers would then wait behind for longer than this.
const LOCK_WAIT: &str = "SET LOCAL lock_timeout = '3s'";

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
    #[error("there is no function \"{0}\" to grant: one of {GRANTABLE:?}")]
    NoFunction(String),
    /// The database did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The functions of the contract that an app's role can be granted.
pub const GRANTABLE: &[&str] = &[
    "confirm",
    "forget",
    "cancel",
    "resolve_not_executed",
    "retry",
    "cancel_batch",
    "seal",
    "waive",
];

/// Applies what is missing; gives the applied migrations, none where all were there.
///
/// # Errors
/// The schema is newer than this program, or a statement failed; then that migration left nothing behind.
pub async fn migrate(connect: &Connect) -> Result<Vec<&'static Migration>, MigrateError> {
    let client = open(connect).await?;
    let mut applied = Vec::new();
    loop {
        run(&client, "begin a migration", "BEGIN").await?;
        run(&client, "wait for other migrations", LOCK).await?;
        run(&client, "bound the wait for locks", LOCK_WAIT).await?;
        let found = version(&client).await?;
        if found > KNOWN {
            return Err(MigrateError::Newer { found });
        }
        let Some(next) = MIGRATIONS
            .iter()
            .find(|migration| migration.version > found)
        else {
            run(&client, "end the migrations", "COMMIT").await?;
            return Ok(applied);
        };
        run(&client, "apply a migration", next.sql).await?;
        run(&client, "commit a migration", "COMMIT").await?;
        applied.push(next);
    }
}

/// Grants to `role` exactly what an app needs, and the named functions.
///
/// # Errors
/// There is no such role or function, or a statement failed; then nothing was granted.
pub async fn grant_app(
    connect: &Connect,
    role: &str,
    functions: &[String],
) -> Result<Vec<String>, MigrateError> {
    if let Some(unknown) = functions
        .iter()
        .find(|name| !GRANTABLE.contains(&name.as_str()))
    {
        return Err(MigrateError::NoFunction(unknown.clone()));
    }
    let client = open(connect).await?;
    let rows = client
        .query_typed(
            include_str!("../../sql/queries/grants.sql"),
            &[
                (&role, tokio_postgres::types::Type::TEXT),
                (&functions, tokio_postgres::types::Type::TEXT_ARRAY),
            ],
        )
        .await
        .map_err(|error| StoreError::statement("list the grants", error))?;
    if rows.is_empty() {
        return Err(MigrateError::NoRole(role.to_owned()));
    }
    let grants: Vec<String> = rows
        .iter()
        .map(|row| column("list the grants", row, "statement"))
        .collect::<Result<_, _>>()?;
    // Several statements in one message are one transaction (PostgreSQL, chapter 55.2.2.1).
    run(&client, "grant", &grants.join("; ")).await?;
    Ok(grants)
}

async fn open(connect: &Connect) -> Result<Client, StoreError> {
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

async fn run(client: &Client, operation: &'static str, sql: &str) -> Result<(), StoreError> {
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
