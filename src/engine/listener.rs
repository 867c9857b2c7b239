//! Listens for notifications, and makes loops look sooner. Without it they poll.

use std::{sync::atomic::Ordering, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{context::Shared, driver::backoff};
use crate::{
    observe::Observation,
    shutdown::Tasks,
    store::{
        StoreError,
        connect::Connect,
        wakeup::{Hint, Listener},
    },
};

const NAME: &str = "listener";

/// Longer than the longest backoff and the longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where notifications do not arrive, it is tried so often whether they do: somebody may change the pooler's mode.
const AGAIN: Duration = Duration::from_mins(1);

pub(super) fn spawn(tasks: &Tasks, context: &Shared, connect: Connect, until: &CancellationToken) {
    let context = context.clone();
    let (stopped, drivers) = (until.clone(), tasks.clone());
    tasks.spawn_loop(NAME, until.clone(), async move {
        let (mut failures, mut said) = (0, false);
        loop {
            let listening = listen(&context, &connect, &drivers, &mut failures);
            let ended = tokio::select! {
                () = stopped.cancelled() => return,
                ended = listening => ended,
            };
            context.observer.emit(Observation::Listening(false));
            let pause = match ended {
                Err(error) => {
                    context.failed(&error);
                    failures += 1;
                    backoff().delay(failures, None)
                }
                Ok(Deaf) => {
                    if !said {
                        tracing::warn!(
                            "notifications do not arrive, as behind a transaction pooler: calls are found by \
                             polling alone, within poll_interval; database.direct_url mends it"
                        );
                    }
                    said = true;
                    failures = 0;
                    AGAIN
                }
            };
            context.turns.turned(NAME, PATIENCE);
            tokio::select! {
                () = stopped.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    });
}

/// Notifications do not arrive.
struct Deaf;

async fn listen(
    context: &Shared,
    connect: &Connect,
    drivers: &Tasks,
    failures: &mut u32,
) -> Result<Deaf, StoreError> {
    let (mut listener, driver) = Listener::connect(connect, context.identity.id).await?;
    drivers.spawn("listener's connection", driver);
    if !listener.subscribe(&context.store).await? {
        return Ok(Deaf);
    }
    context.observer.emit(Observation::Listening(true));
    *failures = 0;
    // What was notified while nobody listened is looked for.
    context.nudges.work.give();
    context.nudges.members.give();
    loop {
        context.turns.turned(NAME, PATIENCE);
        match listener.next_or_silence().await? {
            Some(Hint::Work) => {
                context.hints.fetch_add(1, Ordering::Relaxed);
                context.nudges.work.give();
                context.nudges.order.give();
            }
            Some(Hint::Members) => {
                context.nudges.members.give();
                context.nudges.look.give();
            }
            None => {}
        }
    }
}
