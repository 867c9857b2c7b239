//! Notifications: a hint to look sooner, never a message. Polling alone is enough.

use std::{future::poll_fn, time::Duration};

use futures_util::FutureExt as _;
use tokio_postgres::{AsyncMessage, Client, types::Type};
use uuid::Uuid;

use super::{Store, StoreError, connect::Connect};

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
    own: String,
}

/// Drives the connection of one [`Listener`]; ends with it.
pub type Driver = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Listener {
    /// Connects and listens. The driver must be spawned before [`Listener::subscribe`].
    ///
    /// # Errors
    /// No connection came about.
    pub async fn connect(connect: &Connect) -> Result<(Self, Driver), StoreError> {
        const OPERATION: &str = "connect to listen";
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
        let own = format!("leafhopper_self_{}", Uuid::new_v4().simple());
        Ok((Self { client, hints, own }, driver.boxed()))
    }

    /// Listens, and tells whether a notification to oneself arrives: behind a transaction pooler none does.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn subscribe(&mut self) -> Result<bool, StoreError> {
        const OPERATION: &str = "listen";
        let listen = format!(
            "LISTEN leafhopper_wake; LISTEN leafhopper_instance; LISTEN {own}; NOTIFY {own}",
            own = self.own
        );
        tokio::time::timeout(REPLY_WAIT, self.client.batch_execute(&listen))
            .await
            .map_err(|_elapsed| StoreError::other(OPERATION, "no answer within 5 s"))?
            .map_err(|error| StoreError::statement(OPERATION, error))?;
        let arrived = tokio::time::timeout(REPLY_WAIT, async {
            while let Some(channel) = self.hints.recv().await {
                if channel == self.own {
                    return true;
                }
            }
            false
        })
        .await;
        Ok(arrived.unwrap_or(false))
    }

    /// Waits for the next hint; `None` after a silence in which the connection proved to live.
    ///
    /// # Errors
    /// The connection broke or no longer answers: a half-open one is found within 15 s.
    pub async fn next_or_silence(&mut self) -> Result<Option<Hint>, StoreError> {
        const OPERATION: &str = "wait for a notification";
        match tokio::time::timeout(SILENCE, self.hints.recv()).await {
            Ok(Some(channel)) if channel == "leafhopper_wake" => Ok(Some(Hint::Work)),
            Ok(Some(channel)) if channel == "leafhopper_instance" => Ok(Some(Hint::Members)),
            Ok(Some(_)) => Ok(None),
            Ok(None) => Err(StoreError::other(OPERATION, "the connection ended")),
            Err(_silence) => {
                tokio::time::timeout(REPLY_WAIT, self.client.simple_query(""))
                    .await
                    .map_err(|_elapsed| StoreError::other(OPERATION, "no answer within 5 s"))?
                    .map_err(|error| StoreError::statement(OPERATION, error))?;
                Ok(None)
            }
        }
    }
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
