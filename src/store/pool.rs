//! The pool of connections, and what each of them has prepared.
//!
//! A named statement is planned once for each connection. Behind a transaction pooler it can be another
//! process's (PostgreSQL, chapter 55.2.3: names live as long as the server's session does), so it is used only
//! where the server's session is certainly this connection's own: each connection is opened with a word of its
//! own among the session's settings, and asks for it. A pooler refuses or drops the setting, or answers from a
//! session that another connection began.

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    sync::{
        Mutex, PoisonError as Poisoned,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool::{
    Runtime,
    managed::{self, Metrics, QueueMode, RecycleError, RecycleResult},
};
use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Statement,
    error::SqlState,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{
    Row,
    connect::{Connect, Driven, OpenError, Term},
    settings,
};

/// How long a connection may take to become free, or to be found good. (To come about: [`Connect::patience`].)
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// Names the setting; it means nothing to the server.
const WORD: &str = "leafhopper.session";

pub(super) type Pool = managed::Pool<Manager>;
pub(super) type Object = managed::Object<Manager>;
pub(crate) type PoolError = managed::PoolError<OpenError>;

/// A parameter with its type: no look-up of types.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Opens connections.
pub(super) struct Manager {
    connect: Connect,
    /// Something in between takes no settings of a session, or mixes sessions up.
    pooled: AtomicBool,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").finish_non_exhaustive()
    }
}

/// One connection to the server.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    task: JoinHandle<()>,
    /// As it was when this was opened.
    term: Term,
    /// `None` where the server's session may not be this connection's own.
    prepared: Option<Mutex<HashMap<Place, Statement>>>,
}

/// Where a statement's text lies, and its length: it is some thousand bytes, and always the same ones.
type Place = (usize, usize);

fn place(sql: &'static str) -> Place {
    (sql.as_ptr().addr(), sql.len())
}

/// A pool of at most `size` connections; nothing is opened yet.
pub(super) fn pool(connect: Connect, size: usize) -> Result<Pool, managed::BuildError> {
    // Only what takes two tries ends by it; one says itself that it took too long.
    let patience = connect.patience() + CONNECTION_WAIT;
    let manager = Manager {
        connect,
        pooled: AtomicBool::new(false),
    };
    Pool::builder(manager)
        .max_size(size)
        // The one that was used last has its caches warm, here and at the server.
        .queue_mode(QueueMode::Lifo)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(CONNECTION_WAIT))
        .create_timeout(Some(patience))
        .recycle_timeout(Some(CONNECTION_WAIT))
        .build()
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = OpenError;

    async fn create(&self) -> Result<Connection, OpenError> {
        if !self.pooled.load(Ordering::Relaxed) {
            let word = Uuid::new_v4().to_string();
            let settings = settings::of_session();
            let options = format!("-c {WORD}={word} {settings}");
            let options = self.connect.options_with(&options);
            match self.open(Some(&options)).await {
                Ok(mut connection) => {
                    let heard = connection.heard(&word).await;
                    if heard.map_err(|error| OpenError::of(&error))? {
                        connection.prepared = Some(Mutex::default());
                    }
                    return Ok(connection);
                }
                Err(error) if refuses_settings(&error) => {}
                Err(error) => return Err(error),
            }
            let connection = self.open(None).await?;
            self.pooled.store(true, Ordering::Relaxed);
            return Ok(connection);
        }
        self.open(None).await
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<OpenError> {
        // A look at the socket costs nothing; a half-open one is found by tcp_user_timeout.
        if connection.client.is_closed() {
            return Err(RecycleError::message("the connection is closed"));
        }
        if connection.term != self.connect.primary.term() {
            return Err(RecycleError::message("its server takes no writes any more"));
        }
        Ok(())
    }
}

impl Manager {
    async fn open(&self, options: Option<&str>) -> Result<Connection, OpenError> {
        let term = self.connect.primary.term();
        // Boxed: all that may open a connection would be as large as this.
        let connecting = Box::pin(self.connect.open_patiently(options));
        let (client, mut connection): (Client, Driven) = connecting.await?;
        let primary = self.connect.primary.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "it lives as long as its connection, and ends with it"
        )]
        let task = tokio::spawn(async move {
            let driven = poll_fn(|context| primary.drive(term, &mut connection, context));
            if let Err(error) = driven.await {
                tracing::debug!("a connection to the database ended: {error}");
            }
        });
        Ok(Connection {
            client,
            task,
            term,
            prepared: None,
        })
    }
}

/// Whether it is the session's settings that are refused, rather than the user, the database or the hour.
fn refuses_settings(error: &OpenError) -> bool {
    error.code().is_some_and(|code| {
        // protocol_violation, feature_not_supported; data and syntax of what was sent (appendix A).
        matches!(code.code().get(..2), Some("08" | "0A" | "22" | "42"))
    })
}

impl Connection {
    /// Whether the server's session was begun by this connection.
    async fn heard(&self, word: &str) -> Result<bool, tokio_postgres::Error> {
        let sql = "SELECT current_setting($1, true)";
        let rows = self.client.query_typed(sql, &[(&WORD, Type::TEXT)]).await?;
        let said = rows.first().and_then(|row| row.get::<_, Option<&str>>(0));
        Ok(said == Some(word))
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the session is this connection's own, and has what [`settings::of_session`] says.
    pub(super) fn has_settings(&self) -> bool {
        self.prepared.is_some()
    }

    /// The statement under a name, where names may be used.
    pub(super) async fn prepared(
        &self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Option<Statement>, tokio_postgres::Error> {
        let Some(prepared) = &self.prepared else {
            return Ok(None);
        };
        let known = |all: &Mutex<HashMap<Place, Statement>>| {
            let all = all.lock().unwrap_or_else(Poisoned::into_inner);
            all.get(&place(sql)).cloned()
        };
        if let Some(statement) = known(prepared) {
            return Ok(Some(statement));
        }
        let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = self.client.prepare_typed(sql, &types).await?;
        let mut all = prepared.lock().unwrap_or_else(Poisoned::into_inner);
        all.insert(place(sql), statement.clone());
        Ok(Some(statement))
    }

    /// Runs the statement, by its name where it has one.
    pub(super) async fn run(
        &self,
        name: Option<&Statement>,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(statement) = name else {
            return self.client.query_typed(sql, params).await;
        };
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        self.client.query(statement, &values).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Without it the task would wait for the replies to what was dropped in the middle.
        self.task.abort();
    }
}

impl Manager {
    /// What an error of this connection says of others, too.
    ///
    /// Names are used no more where one was not what it should be: lost, or another process's. A server that takes no
    /// writes any more, as after a failover that it was not told of by a restart, is left by all.
    pub(super) fn heed(&self, error: &tokio_postgres::Error, connection: &Connection) {
        let is = |known: &[SqlState]| error.code().is_some_and(|code| known.contains(code));
        if is(&[
            SqlState::INVALID_SQL_STATEMENT_NAME,
            SqlState::DUPLICATE_PSTATEMENT,
        ]) {
            self.pooled.store(true, Ordering::Relaxed);
        }
        if is(&[SqlState::READ_ONLY_SQL_TRANSACTION]) {
            self.connect.primary.over(connection.term);
        }
    }
}
