//! What this instance knows of the mark in the database under which inserts notify: "an instance sleeps until".

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// It is set by the dispatcher, and renewed by the look.
#[derive(Debug, Default)]
pub(crate) struct Asleep(Mutex<Mark>);

#[derive(Debug, Default)]
struct Mark {
    /// It is set until about then.
    until: Option<Instant>,
    /// The dispatcher sleeps under it.
    wanted: bool,
}

impl Asleep {
    fn mark(&self) -> MutexGuard<'_, Mark> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the mark covers a sleep of this length.
    pub(crate) fn covers(&self, sleep: Duration) -> bool {
        let now = Instant::now();
        let mut mark = self.mark();
        mark.wanted = true;
        mark.until.is_some_and(|until| now + sleep < until)
    }

    /// Whether the mark was set, which it is no more as far as this instance is concerned.
    pub(crate) fn ends(&self) -> bool {
        let mut mark = self.mark();
        mark.wanted = false;
        mark.until
            .take()
            .is_some_and(|until| Instant::now() < until)
    }

    /// The mark is set, for this long.
    pub(crate) fn announced(&self, duration: Duration) {
        self.mark().until = Some(Instant::now() + duration);
    }

    /// Until when the mark is set under which the dispatcher sleeps, where it has to be renewed soon.
    pub(crate) fn ends_soon(&self, poll: Duration) -> Option<Instant> {
        let now = Instant::now();
        let mark = self.mark();
        // One that has run out is set by the dispatcher, which looks for work once more then.
        mark.until
            .filter(|until| mark.wanted && *until > now && *until - now < poll * 3)
    }

    /// The mark that was set until `before` was renewed. Not where the dispatcher woke meanwhile: it may have taken it back.
    pub(crate) fn renewed(&self, before: Instant, until: Instant) {
        let mut mark = self.mark();
        if mark.until == Some(before) {
            mark.until = Some(until);
        }
    }
}
