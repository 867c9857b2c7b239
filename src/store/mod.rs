//! PostgreSQL: the only module that says SQL. It knows rows, not policy.
//!
//! Each statement is a file of `sql/queries` and one function here. Statements are typed and unnamed: a
//! transaction pooler hands named ones to the wrong process (PostgreSQL 15, chapter 55.2.3, and PgBouncer's
//! own documentation). Writes run in one pipelined round trip `BEGIN … COMMIT` that sets what it needs
//! `LOCAL`ly: READ COMMITTED whatever the role's default is, `synchronous_commit` on, time limits.
//!
//! A connection goes back to the pool only after its work came to an end. One that was dropped in the
//! middle, or that answered like a standby or a dying server, is closed.

pub mod batch;
pub mod claim;
pub mod connect;
pub mod doubt;
mod error;
pub mod instance;
pub mod look;
pub mod migrate;
pub mod operator;
pub mod order;
pub mod origin;
pub mod probe;
pub mod record;
mod refusal;
pub mod stats;
pub mod sweep;
pub mod teardown;
pub mod wakeup;

use std::{sync::Arc, time::Duration};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::{
    Row,
    error::SqlState,
    types::{ToSql, Type},
};

pub use error::StoreError;

use connect::Connect;

use crate::{domain::trace::Trace, step::reached};

/// How long a connection may take to come about or to become free.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// A statement that takes longer than this is given up; none of them should take a tenth of it.
const STATEMENT_LIMIT: Duration = Duration::from_secs(20);

/// Between two statements of a transaction lies a reply and no more: a session that is silent there for so long is
/// given up by the server, which else would keep what it has locked for as long as the connection stays open.
const PAUSE_LIMIT: Duration = Duration::from_secs(5);

/// The server gives up a statement by itself; where not even that is heard, the connection is of no use. What
/// stands in between (a pooler, a mesh) may keep it open for as long as it likes.
const REPLY_LIMIT: Duration = Duration::from_secs(25);

/// A parameter with its type: no look-up of types, no named statement.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The session is of no more use: a standby, a server that shuts down, a broken connection.
fn is_fatal(error: &tokio_postgres::Error) -> bool {
    error.is_closed()
        || error.code().is_none()
        || error.code().is_some_and(|code| {
            *code == SqlState::READ_ONLY_SQL_TRANSACTION
                || code.code().starts_with("57P")
                || code.code().starts_with("08")
        })
}

/// The way to the database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pool: Pool,
    /// Where it leads, without the password.
    to: Arc<str>,
}

/// A borrowed connection that is closed unless its work is declared to be at its end.
struct Session {
    client: Option<Object>,
    finished: bool,
}

impl Session {
    fn client(&self) -> &Object {
        self.client
            .as_ref()
            .expect("a session holds its connection until it is dropped")
    }

    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (false, Some(client)) = (self.finished, self.client.take()) {
            // Out of the pool, then closed: nobody must get a connection that is inside a transaction.
            drop(Object::take(client));
        }
    }
}

impl Store {
    /// A pool of at most `size` connections; nothing is opened yet.
    ///
    /// # Errors
    /// The pool's settings are refused.
    pub fn new(connect: Connect, size: usize) -> Result<Self, StoreError> {
        let to = connect.to_string().into();
        let manager = Manager::from_config(
            connect.config,
            connect.tls,
            // A look at the socket costs nothing; a half-open one is found by tcp_user_timeout.
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let pool = Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECTION_WAIT))
            .create_timeout(Some(CONNECTION_WAIT))
            .recycle_timeout(Some(CONNECTION_WAIT))
            .build()
            .map_err(|error| StoreError::other("build the connection pool", error.to_string()))?;
        Ok(Self { pool, to })
    }

    async fn session(&self, operation: &'static str) -> Result<Session, StoreError> {
        match self.pool.get().await {
            Ok(client) => Ok(Session {
                client: Some(client),
                finished: false,
            }),
            Err(error) => Err(StoreError::no_connection(
                operation,
                Arc::clone(&self.to),
                error,
            )),
        }
    }

    /// One statement that only reads, or is complete in itself.
    pub(crate) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let session = self.session(operation).await?;
        reached(operation, "before");
        // In a transaction for its settings alone: it may meet somebody's lock on a whole table.
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL jit = off; SET LOCAL statement_timeout = {}",
            STATEMENT_LIMIT.as_millis()
        );
        let client = session.client();
        let replies = async {
            tokio::join!(
                client.batch_execute(&begin),
                client.query_typed(sql, params),
                client.batch_execute("COMMIT"),
            )
        };
        let (begun, rows, ended) = in_time(operation, replies).await?;
        match begun.and(rows).and_then(|rows| ended.map(|()| rows)) {
            Ok(rows) => {
                reached(operation, "done");
                session.finish();
                Ok(rows)
            }
            Err(error) => Err(failed(operation, session, error)),
        }
    }

    /// One statement in a transaction of its own, in one round trip, durable when this returns.
    ///
    /// # Errors
    /// Where the reply to the COMMIT is lost, nobody knows whether it took place.
    pub(crate) async fn write(
        &self,
        operation: &'static str,
        lock_wait: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let transaction = self.begin(operation).await?;
        let begin = begin(lock_wait);
        let client = transaction.session.client();
        reached(operation, "before");
        // All three are sent before the first is answered: futures run in order until they first wait.
        let replies = async {
            tokio::join!(
                client.batch_execute(&begin),
                client.query_typed(sql, params),
                client.batch_execute("COMMIT"),
            )
        };
        let (begun, rows, committed) = in_time(operation, replies).await?;
        match begun.and(rows) {
            Ok(rows) => transaction.committed(committed).map(|()| rows),
            Err(error) => Err(transaction.failed(error)),
        }
    }

    async fn begin(&self, operation: &'static str) -> Result<Transaction, StoreError> {
        Ok(Transaction {
            operation,
            session: self.session(operation).await?,
        })
    }
}

/// A transaction under way; dropped without an end, its connection is closed.
struct Transaction {
    operation: &'static str,
    session: Session,
}

impl Transaction {
    /// The first statement, pipelined behind BEGIN.
    async fn first(
        &self,
        lock_wait: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let begin = begin(lock_wait);
        let client = self.session.client();
        reached(self.operation, "before");
        let replies = async {
            tokio::join!(
                client.batch_execute(&begin),
                client.query_typed(sql, params)
            )
        };
        let (begun, rows) = in_time(self.operation, replies).await?;
        reached(self.operation, "open");
        begun
            .and(rows)
            .map_err(|error| StoreError::statement(self.operation, error))
    }

    /// Another statement, with a snapshot of its own (PostgreSQL, chapter 13.2.1).
    async fn next(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let client = self.session.client();
        let rows = in_time(self.operation, client.query_typed(sql, params)).await?;
        reached(self.operation, "next");
        rows.map_err(|error| StoreError::statement(self.operation, error))
    }

    /// The last statement, pipelined before COMMIT.
    async fn last(self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let client = self.session.client();
        let replies = async {
            tokio::join!(
                client.query_typed(sql, params),
                client.batch_execute("COMMIT")
            )
        };
        let (rows, committed) = in_time(self.operation, replies).await?;
        match rows {
            Ok(rows) => self.committed(committed).map(|()| rows),
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn commit(self) -> Result<(), StoreError> {
        let commit = self.session.client().batch_execute("COMMIT");
        let committed = in_time(self.operation, commit).await?;
        self.committed(committed)
    }

    fn committed(self, reply: Result<(), tokio_postgres::Error>) -> Result<(), StoreError> {
        match reply {
            Ok(()) => {
                reached(self.operation, "done");
                self.session.finish();
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The COMMIT behind a failed statement has rolled back, unless it was not sent: then the connection
    /// is closed, which rolls back too.
    fn failed(self, error: tokio_postgres::Error) -> StoreError {
        StoreError::statement(self.operation, error)
    }
}

fn failed(operation: &'static str, session: Session, error: tokio_postgres::Error) -> StoreError {
    if !is_fatal(&error) {
        session.finish();
    }
    StoreError::statement(operation, error)
}

/// Replies, unless they are too long in coming: then nobody knows what was done, as after a broken connection.
async fn in_time<T>(
    operation: &'static str,
    replies: impl Future<Output = T>,
) -> Result<T, StoreError> {
    let replies = tokio::time::timeout(REPLY_LIMIT, replies).await;
    replies.map_err(|_elapsed| {
        let limit = REPLY_LIMIT.as_secs();
        StoreError::other(operation, format!("no reply within {limit} s"))
    })
}

/// Without JIT: where the planner's numbers are old, compiling a statement takes longer than running it.
fn begin(lock_wait: Duration) -> String {
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on; SET LOCAL jit = off; \
         SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = {}; \
         SET LOCAL idle_in_transaction_session_timeout = {}",
        lock_wait.as_millis(),
        STATEMENT_LIMIT.as_millis(),
        PAUSE_LIMIT.as_millis(),
    )
}

/// A column by name; a value that can't be read is an error that names the row.
fn column<'row, T: tokio_postgres::types::FromSql<'row>>(
    operation: &'static str,
    row: &'row Row,
    name: &str,
) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| {
        let id = row
            .try_get::<_, i64>(0)
            .map_or_else(|_| "without id".to_owned(), |id| id.to_string());
        StoreError::row(operation, id, format!("{name}: {error}"))
    })
}

/// Where a row stands in its caller's trace, by its columns `traceparent` and `tracestate`.
fn trace(operation: &'static str, row: &Row) -> Result<Option<Trace>, StoreError> {
    let parent: Option<&str> = column(operation, row, "traceparent")?;
    Ok(Trace::of(parent, column(operation, row, "tracestate")?))
}

/// A count that the schema keeps above zero.
fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or_default()
}

/// For the database, which counts in signed numbers.
fn int4(value: impl TryInto<i32>) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}

/// Seconds; what is negative by a stepped clock counts as none.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}
