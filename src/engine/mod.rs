//! The loops, and what they share. The only module that joins the store to the leaves, and the only one
//! that emits observations.
//!
//! Every instance runs every loop; none is a leader. A loop is safe beside its like in another instance
//! because the statement that it runs names the state and the claim that it expects. Read [`attempt`]
//! first: one call's life, top to bottom.

mod ageing;
mod ask;
mod asleep;
mod attempt;
mod batcher;
mod begun;
mod bodies;
mod breaker;
mod busy;
mod context;
mod credentials;
mod dispatcher;
mod driver;
mod entry;
mod expirer;
mod guardian;
mod heartbeat;
mod held;
mod janitor;
mod jobs;
mod journal;
mod lane;
mod lanes;
mod lease;
mod listener;
mod lookout;
mod marks;
mod notifier;
mod places;
mod probe_place;
mod prober;
mod promoter;
mod ramp;
mod rate;
mod reclaimer;
mod recorder;
mod rest;
mod said;
mod teardown;
mod untracked;

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

pub(crate) use begun::{Begun, Predecessor};
pub(crate) use context::{Context, Identity};
pub(crate) use lane::Lane;
pub(crate) use lanes::Lanes;

use crate::{
    shutdown::{Stop, Tasks},
    store::{StoreError, connect::Connect},
};

/// How long recording may still take after the attempts were told to give up.
const RECORDING_GRACE: Duration = Duration::from_secs(5);

/// Takes over what a dead process of this machine left: what it had not begun to send is pending again, the
/// rest is in doubt, and its share of the limits is free.
pub(crate) async fn take_over(
    context: &Context,
    predecessor: &Predecessor,
) -> Result<(), StoreError> {
    let mut unsent = 0;
    if let Some(begun) = &predecessor.begun {
        let begun: Vec<i64> = begun.iter().map(|(call, _)| *call).collect();
        let given = context
            .store
            .give_back(predecessor.id, i64::MAX, &[], &begun)
            .await?;
        unsent = given.calls;
    }
    context.store.bury(predecessor.id).await?;
    tracing::info!(
        instance.id = %predecessor.id,
        "took over from a process that died here: {unsent} of its claims were never sent"
    );
    context.store.notify("leafhopper_instance").await
}

/// The running loops.
#[derive(Debug)]
pub(crate) struct Engine {
    context: Arc<Context>,
    tasks: Tasks,
    dispatching: Tasks,
    attempts: Tasks,
    stop: Stop,
    /// The heartbeat, which must have ended before this instance's row is removed: it would add it again.
    lease: Tasks,
    lease_end: CancellationToken,
    /// Ends what else must outlive the attempts: recording.
    end: CancellationToken,
}

impl Engine {
    /// Starts all loops.
    pub(crate) fn start(
        context: Arc<Context>,
        recordings: recorder::Recordings,
        direct: Option<Connect>,
        stop: Stop,
    ) -> Self {
        let tasks = Tasks::default();
        let dispatching = tasks.beside();
        let attempts = Tasks::default();
        let end = CancellationToken::new();
        recorder::spawn(&tasks, &context, recordings, &end);
        let (lease, lease_end) = (tasks.apart(), CancellationToken::new());
        heartbeat::spawn(&lease, &context, &lease_end);
        notifier::spawn(&tasks, &context, &end);
        dispatcher::spawn(&dispatching, &context, &attempts, &stop);
        let claiming = &stop.claiming;
        reclaimer::spawn(&tasks, &context, claiming);
        prober::spawn(&tasks, &context, &attempts, claiming);
        expirer::spawn(&tasks, &context, claiming);
        batcher::spawn(&tasks, &context, claiming);
        promoter::spawn(&tasks, &context, claiming);
        untracked::spawn(&tasks, &context, claiming);
        guardian::spawn(&tasks, &context, claiming);
        credentials::spawn(&tasks, &context, claiming);
        jobs::spawn(&tasks, &context, claiming);
        janitor::spawn(&tasks, &context, claiming);
        lookout::spawn(&tasks, &context, claiming);
        if let Some(direct) = direct {
            listener::spawn(&tasks, &context, direct, claiming);
        }
        Self {
            context,
            tasks,
            dispatching,
            attempts,
            stop,
            lease,
            lease_end,
            end,
        }
    }

    /// Done when a loop has ended by itself: the process should end too.
    pub(crate) async fn broken(&self) {
        self.tasks.broken().await;
    }

    /// Stops claiming, waits up to `grace` for attempts under way, then leaves the rest in doubt. `true`
    /// where nothing had to be left.
    pub(crate) async fn drain(self, grace: Duration) -> bool {
        self.stop.claiming.cancel();
        // A claim under way comes to its end first, so that nothing is claimed behind the drain's back.
        let ended = async {
            self.dispatching.join().await;
            self.attempts.join().await;
        };
        let in_time = tokio::time::timeout(grace, ended).await.is_ok();
        if !in_time {
            let calls = self.context.held.len();
            tracing::warn!(
                calls,
                "{calls} attempts did not end within shutdown_grace: they are left in doubt"
            );
            self.stop.waiting.cancel();
        }
        let recorded = in_time
            || tokio::time::timeout(RECORDING_GRACE, self.attempts.join())
                .await
                .is_ok();
        self.lease_end.cancel();
        let lease_ended = tokio::time::timeout(RECORDING_GRACE, self.lease.join()).await;
        if recorded {
            if lease_ended.is_ok() {
                // Where the database says nothing, the lease does what this would have done.
                let leave = reclaimer::leave(&self.context);
                drop(tokio::time::timeout(RECORDING_GRACE, leave).await);
            }
            if let Some(begun) = &self.context.begun {
                begun.remove();
            }
        } else {
            let calls = self.context.held.len();
            tracing::error!(
                calls,
                "{calls} calls could not be recorded: their lease leaves them in doubt"
            );
        }
        self.end.cancel();
        drop(tokio::time::timeout(RECORDING_GRACE, self.tasks.join()).await);
        journal::write(&self.context);
        in_time && recorded
    }
}

pub(crate) use driver::backoff;
pub(crate) use journal::replay;
pub(crate) use recorder::channel as recordings;
