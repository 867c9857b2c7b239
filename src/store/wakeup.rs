//! Notifications: a hint to look sooner, never a message. Polling alone is enough.

use std::{future::poll_fn, time::Duration};

use futures_util::FutureExt as _;
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage, types::Type};
use uuid::Uuid;

use super::{
    Store, StoreError,
    connect::{Connect, Term},
};

/// A connection that says nothing for so long is asked whether it still lives.
const SILENCE: Duration = Duration::from_secs(10);

/// So long a reply, or the notification to oneself, may take.
const REPLY_WAIT: Duration = Duration::from_secs(5);

/// What a notification is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// There are new calls.
    Work,
    /// Instances came or went.
    Members,
}

/// A connection that listens. It must not lead through a transaction pooler.
#[derive(Debug)]
pub struct Listener {
    client: Client,
    hints: tokio::sync::mpsc::Receiver<String>,
    /// A channel of its own.
    own: String,
    connect: Connect,
    /// As it was when this was opened.
    term: Term,
}

/// Drives the connection of one [`Listener`]; ends with it.
pub type Driver = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Listener {
    /// Connects, for whoever is `own`. The driver must run beside [`Listener::subscribe`].
    ///
    /// # Errors
    /// No connection came about.
    pub async fn connect(connect: &Connect, own: Uuid) -> Result<(Self, Driver), StoreError> {
        const OPERATION: &str = "connect to listen";
        let term = connect.primary.term();
        let opened = connect.open_patiently(None).await;
        let (client, mut connection) =
            opened.map_err(|error| StoreError::not_opened(OPERATION, connect, error))?;
        // A few are enough: a full queue means that somebody is awake already.
        let (sender, hints) = tokio::sync::mpsc::channel(16);
        let driver = async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    sender
                        .try_send(notification.channel().to_owned())
                        .unwrap_or_default();
                }
            }
        };
        let listener = Self {
            client,
            hints,
            own: format!("leafhopper_self_{}", own.simple()),
            connect: connect.clone(),
            term,
        };
        Ok((listener, driver.boxed()))
    }

    /// Listens, where notifications arrive: behind a transaction pooler none do, and nothing is listened to.
    ///
    /// The store sends the one that tells, while nothing runs here. One that a session sends itself arrives behind a
    /// pooler, too, with the reply to the statement that sent it.
    ///
    /// # Errors
    /// The connection broke, or the store's did.
    pub async fn subscribe(&mut self, store: &Store) -> Result<bool, StoreError> {
        self.execute(&format!("LISTEN {}", self.own)).await?;
        store.notify(&self.own).await?;
        let arrives = self.hears_its_own().await;
        if arrives {
            self.execute("LISTEN leafhopper_wake; LISTEN leafhopper_instance")
                .await?;
        }
        Ok(arrives)
    }

    async fn execute(&self, sql: &str) -> Result<(), StoreError> {
        const OPERATION: &str = "listen";
        tokio::time::timeout(REPLY_WAIT, self.client.batch_execute(sql))
            .await
            .map_err(|_elapsed| StoreError::other(OPERATION, "no answer within 5 s"))?
            .map_err(|error| StoreError::statement(OPERATION, error))
    }

    async fn hears_its_own(&mut self) -> bool {
        let arrived = tokio::time::timeout(REPLY_WAIT, async {
            while let Some(channel) = self.hints.recv().await {
                if channel == self.own {
                    return true;
                }
            }
            false
        })
        .await;
        arrived.unwrap_or(false)
    }

    /// Waits for the next hint; `None` after a silence in which the connection proved to live, at a server that takes
    /// writes.
    ///
    /// # Errors
    /// The connection broke or no longer answers: a half-open one is found within 15 s. Or its server takes no writes
    /// any more, so nothing will be notified there.
    pub async fn next_or_silence(&mut self) -> Result<Option<Hint>, StoreError> {
        const OPERATION: &str = "wait for a notification";
        let hint = tokio::select! {
            hint = tokio::time::timeout(SILENCE, self.hints.recv()) => hint,
            () = self.connect.primary.until_over(self.term) => return Err(left()),
        };
        match hint {
            Ok(Some(channel)) if channel == "leafhopper_wake" => Ok(Some(Hint::Work)),
            Ok(Some(channel)) if channel == "leafhopper_instance" => Ok(Some(Hint::Members)),
            Ok(Some(_)) => Ok(None),
            Ok(None) => Err(StoreError::other(OPERATION, "the connection ended")),
            Err(_silence) => self.still_lives().await.map(|()| None),
        }
    }

    async fn still_lives(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "look after the connection that listens";
        let asking = self.client.simple_query("SHOW transaction_read_only");
        let replies = tokio::time::timeout(REPLY_WAIT, asking)
            .await
            .map_err(|_elapsed| StoreError::other(OPERATION, "no answer within 5 s"))?
            .map_err(|error| StoreError::statement(OPERATION, error))?;
        let read_only = replies.iter().any(|reply| match reply {
            SimpleQueryMessage::Row(row) => row.get(0) == Some("on"),
            _ => false,
        });
        if read_only {
            self.connect.primary.over(self.term);
        }
        if self.connect.primary.term() == self.term {
            Ok(())
        } else {
            Err(left())
        }
    }
}

fn left() -> StoreError {
    StoreError::other(
        "wait for a notification",
        "the server takes no writes any more",
    )
}

impl Store {
    /// Says that this instance sleeps for at most `duration`: until then an insert notifies.
    ///
    /// # Errors
    /// The database did not answer; then polling finds the work.
    pub async fn announce_sleep(&self, duration: Duration) -> Result<(), StoreError> {
        self.query(
            "announce sleep",
            include_str!("../../sql/queries/announce_sleep.sql"),
            &[(&duration.as_secs_f64(), Type::FLOAT8)],
        )
        .await
        .map(drop)
    }

    /// Takes back the mark that an instance sleeps: from now on inserts need not notify.
    ///
    /// # Errors
    /// The database did not answer; the mark runs out by itself.
    pub async fn announce_awake(&self) -> Result<(), StoreError> {
        self.query(
            "announce that it is awake",
            include_str!("../../sql/queries/announce_awake.sql"),
            &[],
        )
        .await
        .map(drop)
    }

    /// Notifies a channel of the contract, or the other instances.
    ///
    /// # Errors
    /// The database did not answer; listeners have to look by themselves.
    pub async fn notify(&self, channel: &str) -> Result<(), StoreError> {
        self.query(
            "notify",
            include_str!("../../sql/queries/notify.sql"),
            &[(&channel, Type::TEXT)],
        )
        .await
        .map(drop)
    }
}
