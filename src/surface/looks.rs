//! What is read once however many ask at the same time, and is good for a while.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::shutdown::Tasks;

/// Looks at one thing: at most one is under way, and all who ask meanwhile get what it sees.
#[derive(Debug)]
pub(super) struct Looks<T> {
    // No look holds it while it reads, so nobody ever waits for it.
    state: Arc<Mutex<State<T>>>,
}

#[derive(Debug)]
struct State<T> {
    /// So often something was changed by hand.
    changes: u64,
    /// What was seen last, and until when that is good.
    last: Option<(T, Instant)>,
    under_way: Option<UnderWay<T>>,
}

#[derive(Debug, Clone)]
struct UnderWay<T> {
    /// So often something had been changed by hand when it began.
    changes: u64,
    /// What it sees, at its end.
    seen: watch::Receiver<Option<T>>,
}

impl<T> Default for Looks<T> {
    fn default() -> Self {
        let state = State {
            changes: 0,
            last: None,
            under_way: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Looks<T> {
    /// Something was changed by hand: whoever asks from now on gets nothing that was read before, or is being read now.
    pub(super) fn forget(&self) {
        let mut state = lock(&self.state);
        state.changes += 1;
        state.last = None;
    }

    /// What `read` sees, or saw a moment ago; none if it panicked. What was seen is good for as long as `good_for` says, of
    /// it and of the time that it took. A look goes on where nobody waits for it any more, so that the next one finds what
    /// it saw: else what takes longer to read than anybody waits would never be read.
    pub(super) async fn look<R>(
        &self,
        tasks: &Tasks,
        good_for: fn(&T, Duration) -> Duration,
        read: impl Fn() -> R,
    ) -> Option<T>
    where
        R: Future<Output = T> + Send + 'static,
    {
        let asked_after = lock(&self.state).changes;
        loop {
            let mut look = {
                let mut state = lock(&self.state);
                if let Some(seen) = state.still_good() {
                    return Some(seen);
                }
                match state.under_way() {
                    Some(look) => look,
                    None => self.begin(&mut state, tasks, good_for, read()),
                }
            };
            let seen = look.seen.wait_for(Option::is_some).await.ok()?.clone();
            if look.changes >= asked_after {
                return seen;
            }
        }
    }

    fn begin(
        &self,
        state: &mut State<T>,
        tasks: &Tasks,
        good_for: fn(&T, Duration) -> Duration,
        read: impl Future<Output = T> + Send + 'static,
    ) -> UnderWay<T> {
        let (tell, seen) = watch::channel(None);
        let changes = state.changes;
        let look = UnderWay { changes, seen };
        state.under_way = Some(look.clone());
        let state = Arc::clone(&self.state);
        tasks.spawn("look", async move {
            let began = Instant::now();
            let seen = read.await;
            let good_until = Instant::now() + good_for(&seen, began.elapsed());
            let mut state = lock(&state);
            state.under_way = None;
            if state.changes == changes {
                state.last = Some((seen.clone(), good_until));
            }
            drop(state);
            tell.send_replace(Some(seen));
        });
        look
    }
}

impl<T: Clone> State<T> {
    fn still_good(&self) -> Option<T> {
        let last = self.last.as_ref();
        last.filter(|(_, good_until)| Instant::now() < *good_until)
            .map(|(seen, _)| seen.clone())
    }

    /// The look that is under way, unless it panicked: then nobody is left to tell what it sees.
    fn under_way(&self) -> Option<UnderWay<T>> {
        let look = self.under_way.as_ref();
        look.filter(|look| look.seen.has_changed().is_ok()).cloned()
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
