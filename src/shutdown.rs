//! Stopping in two stages, and the one place where tasks are spawned.
//!
//! Stage one, [`Stop::claiming`]: nothing new is claimed; attempts under way go on. Stage two,
//! [`Stop::waiting`]: attempts that still wait for a leaf give up and are recorded as in doubt. Recording
//! itself is not cancelled by either. A process that dies instead leaves the same to its lease.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The two stages.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Stop claiming.
    pub claiming: CancellationToken,
    /// Stop waiting for leaves.
    pub waiting: CancellationToken,
}

/// Spawns and tracks tasks; a loop that ends by itself ends the process.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    broken: CancellationToken,
}

impl Tasks {
    /// Tasks that are joined apart, but whose broken loops end the same process.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self {
            tracker: TaskTracker::new(),
            broken: self.broken.clone(),
        }
    }

    /// A task that may end at any time. A panic in it is logged and ends nothing else.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        // Boxed at once: a call's way is a future of some kilobytes, which each wrapper around it would move.
        let task = std::panic::AssertUnwindSafe(Box::pin(task)).catch_unwind();
        drop(self.tracker.spawn(async move {
            if task.await.is_err() {
                tracing::error!(task.name = name, "task {name} panicked");
            }
        }));
    }

    /// A loop that ends only when `until` is cancelled. Where it ends before, a half-alive sidecar would be
    /// worse than one that is restarted: [`Tasks::broken`] says so.
    pub fn spawn_loop(
        &self,
        name: &'static str,
        until: CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let broken = self.broken.clone();
        self.spawn(name, async move {
            let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() || !until.is_cancelled() {
                tracing::error!(
                    task.name = name,
                    "loop {name} has ended: the process ends too"
                );
                broken.cancel();
            }
        });
    }

    /// Tasks that can be waited for by themselves; a loop among them that ends breaks these here too.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self {
            tracker: TaskTracker::new(),
            broken: self.broken.clone(),
        }
    }

    /// Done when a loop has ended by itself.
    pub async fn broken(&self) {
        self.broken.cancelled().await;
    }

    /// Waits until every task has ended.
    pub async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// SIGTERM and SIGINT: the first drains, the second ends at once. SIGHUP rereads the configuration.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Stop.
    Stop,
    /// Read the configuration again.
    Reload,
}

impl Signals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// The system refused the handlers.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}

/// The first process of a container is not ended by a signal that it does not handle.
///
/// Done at SIGTERM or SIGINT, with the exit code that a shell gives one that a signal ended; never for a process that is not
/// the first.
///
/// # Errors
/// The system refused the handlers.
pub async fn told_as_first_process() -> std::io::Result<u8> {
    if std::process::id() != 1 {
        return std::future::pending().await;
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok(128 + 15),
        _ = interrupt.recv() => Ok(128 + 2),
    }
}

/// A hint that can be given from anywhere and is never lost: one that comes before the wait ends the wait.
#[derive(Debug, Clone, Default)]
pub struct Nudge(Arc<tokio::sync::Notify>);

impl Nudge {
    /// Gives the hint.
    pub fn give(&self) {
        self.0.notify_one();
    }

    /// Waits for the hint.
    pub async fn taken(&self) {
        self.0.notified().await;
    }
}
