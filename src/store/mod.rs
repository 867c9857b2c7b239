//! PostgreSQL: the only module that says SQL. It knows rows, not policy.
//!
//! Each statement is a file of `sql/queries` and one function here. What the loops run again and again is prepared
//! where that is safe ([`pool`]), and planned once whatever its parameters and however empty its tables were;
//! else statements are typed and unnamed. What is complete in one statement runs alone. Other writes run in one pipelined
//! round trip `BEGIN … COMMIT`. Whatever the role's defaults are: READ COMMITTED, `synchronous_commit` on, time limits
//! ([`settings`]).
//!
//! A connection goes back to the pool only after its work came to an end. One that was dropped in the
//! middle, or that answered like a standby or a dying server, is closed.

pub mod batch;
mod body;
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
mod pool;
pub mod probe;
pub mod prune;
pub mod record;
mod refusal;
pub mod roles;
mod settings;
pub mod stats;
pub mod sweep;
pub mod teardown;
pub mod wakeup;

use std::{sync::Arc, time::Duration};

use tokio_postgres::{Client, Row, Statement, error::SqlState};

pub use error::StoreError;
pub(crate) use pool::Param;

use crate::{domain::trace::Trace, step::reached};
use connect::Connect;
use pool::{Connection, Object, Pool};

/// The target that logs, at `debug`, the parameters of prepared statements: bodies, and what rows hold of secrets.
pub(crate) const SAYS_PARAMETERS: &str = "tokio_postgres::query";

/// The server gives up a statement by itself; where not even that is heard, the connection is of no use. What
/// stands in between (a pooler, a mesh) may keep it open for as long as it likes.
const REPLY_LIMIT: Duration = Duration::from_secs(25);

/// The session is of no more use: a standby, a server that shuts down, a broken connection, what it has prepared
/// is outdated or not there.
fn is_fatal(error: &tokio_postgres::Error) -> bool {
    error.is_closed()
        || error.code().is_none()
        || error.code().is_some_and(|code| {
            *code == SqlState::READ_ONLY_SQL_TRANSACTION
                || *code == SqlState::FEATURE_NOT_SUPPORTED
                || *code == SqlState::INVALID_SQL_STATEMENT_NAME
                || *code == SqlState::DUPLICATE_PSTATEMENT
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
    /// Statements are prepared and keep their plans.
    preparing: bool,
}

/// A borrowed connection that is closed unless its work is declared to be at its end.
struct Session {
    client: Option<Object>,
    preparing: bool,
    finished: bool,
}

impl Session {
    fn connection(&self) -> &Connection {
        self.client
            .as_ref()
            .expect("a session holds its connection until it is dropped")
    }

    fn client(&self) -> &Client {
        self.connection().client()
    }

    /// The statement's name on this connection, where it is to have one.
    async fn named(
        &self,
        operation: &'static str,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Option<Statement>, StoreError> {
        if !self.preparing {
            return Ok(None);
        }
        let prepared = in_time(operation, self.connection().prepared(sql, params)).await?;
        prepared.map_err(|error| self.heeded(operation, error))
    }

    /// How its transactions that write begin.
    fn begin(&self, lock_wait: Duration) -> String {
        settings::begin(lock_wait, self.preparing, self.connection().has_settings())
    }

    /// What a statement failed by: the connection is of use for another one only where the transaction is over.
    fn failed(
        self,
        operation: &'static str,
        error: tokio_postgres::Error,
        over: bool,
    ) -> StoreError {
        let usable = over && !is_fatal(&error);
        let error = self.heeded(operation, error);
        if usable {
            self.finish();
        }
        error
    }

    /// The pool hears of every error: one of a statement's name ends the use of names.
    fn heeded(&self, operation: &'static str, error: tokio_postgres::Error) -> StoreError {
        if let Some(pool) = self.client.as_ref().and_then(Object::pool) {
            pool.manager().heed(&error, self.connection());
        }
        StoreError::statement(operation, error)
    }

    /// What a transaction came to whose COMMIT was sent with its statements: behind a failed one it has rolled back.
    fn ended<T>(
        self,
        operation: &'static str,
        done: Result<T, tokio_postgres::Error>,
        ended: Result<(), tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        match (done, ended) {
            (Ok(done), Ok(())) => {
                reached(operation, "done");
                self.finish();
                Ok(done)
            }
            (Err(error), ended) => Err(self.failed(operation, error, ended.is_ok())),
            (Ok(_), Err(error)) => Err(self.failed(operation, error, false)),
        }
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
        let pool = pool::pool(connect, size)
            .map_err(|error| StoreError::other("build the connection pool", error.to_string()))?;
        Ok(Self {
            pool,
            to,
            preparing: false,
        })
    }

    /// For statements that run again and again, by parameters that ask for no other plan.
    #[must_use]
    pub fn preparing(self) -> Self {
        Self {
            preparing: true,
            ..self
        }
    }

    /// For statements whose plan depends on their parameters.
    #[must_use]
    pub(crate) fn planning(&self) -> Self {
        Self {
            preparing: false,
            ..self.clone()
        }
    }

    async fn session(&self, operation: &'static str) -> Result<Session, StoreError> {
        match self.pool.get().await {
            Ok(client) => Ok(Session {
                client: Some(client),
                preparing: self.preparing,
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
        let client = session.client();
        let rows = if session.connection().has_settings() {
            in_time(operation, client.query_typed(sql, params)).await?
        } else {
            // In a transaction for its settings alone: it may meet somebody's lock on a whole table.
            let begin = settings::begin_alone();
            let replies = async {
                tokio::join!(
                    client.batch_execute(&begin),
                    client.query_typed(sql, params),
                    client.batch_execute("COMMIT"),
                )
            };
            let (begun, rows, ended) = in_time(operation, replies).await?;
            begun.and(rows).and_then(|rows| ended.map(|()| rows))
        };
        match rows {
            Ok(rows) => {
                reached(operation, "done");
                session.finish();
                Ok(rows)
            }
            Err(error) => Err(session.failed(operation, error, true)),
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
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let session = self.session(operation).await?;
        let name = session.named(operation, sql, params).await?;
        let begin = session.begin(lock_wait);
        let client = session.client();
        reached(operation, "before");
        // All three are sent before the first is answered: futures run in order until they first wait.
        let replies = async {
            tokio::join!(
                client.batch_execute(&begin),
                session.connection().run(name.as_ref(), sql, params),
                client.batch_execute("COMMIT"),
            )
        };
        let (begun, rows, ended) = in_time(operation, replies).await?;
        session.ended(operation, begun.and(rows), ended)
    }

    /// Two statements in one transaction, each with a snapshot of its own, as [`Self::write`].
    pub(crate) async fn write_both(
        &self,
        operation: &'static str,
        lock_wait: Duration,
        (first, first_params): (&'static str, &[Param<'_>]),
        (second, second_params): (&'static str, &[Param<'_>]),
    ) -> Result<(Vec<Row>, Vec<Row>), StoreError> {
        let session = self.session(operation).await?;
        let names = (
            session.named(operation, first, first_params).await?,
            session.named(operation, second, second_params).await?,
        );
        let begin = session.begin(lock_wait);
        let client = session.client();
        reached(operation, "before");
        let replies = async {
            let connection = session.connection();
            tokio::join!(
                client.batch_execute(&begin),
                connection.run(names.0.as_ref(), first, first_params),
                connection.run(names.1.as_ref(), second, second_params),
                client.batch_execute("COMMIT"),
            )
        };
        let (begun, first, second, ended) = in_time(operation, replies).await?;
        let both = begun
            .and(first)
            .and_then(|first| second.map(|second| (first, second)));
        session.ended(operation, both, ended)
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
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let name = self.session.named(self.operation, sql, params).await?;
        let begin = self.session.begin(lock_wait);
        reached(self.operation, "before");
        let replies = async {
            tokio::join!(
                self.session.client().batch_execute(&begin),
                self.session.connection().run(name.as_ref(), sql, params)
            )
        };
        let (begun, rows) = in_time(self.operation, replies).await?;
        reached(self.operation, "open");
        begun
            .and(rows)
            .map_err(|error| self.session.heeded(self.operation, error))
    }

    /// Another statement, with a snapshot of its own (PostgreSQL, chapter 13.2.1).
    async fn next(&self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let name = self.session.named(self.operation, sql, params).await?;
        let running = self.session.connection().run(name.as_ref(), sql, params);
        let rows = in_time(self.operation, running).await?;
        reached(self.operation, "next");
        rows.map_err(|error| self.session.heeded(self.operation, error))
    }

    /// The last statement, pipelined before COMMIT.
    async fn last(self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let name = self.session.named(self.operation, sql, params).await?;
        let replies = async {
            tokio::join!(
                self.session.connection().run(name.as_ref(), sql, params),
                self.session.client().batch_execute("COMMIT")
            )
        };
        let (rows, ended) = in_time(self.operation, replies).await?;
        self.session.ended(self.operation, rows, ended)
    }

    async fn commit(self) -> Result<(), StoreError> {
        let commit = self.session.client().batch_execute("COMMIT");
        let ended = in_time(self.operation, commit).await?;
        self.session.ended(self.operation, Ok(()), ended)
    }
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
