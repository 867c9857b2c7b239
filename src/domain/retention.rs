//! How long the rows of what has ended are kept.

use std::time::Duration;

/// At the latest after this time it is looked again for what has grown old.
const SELDOM: Duration = Duration::from_mins(10);

/// And not before this one.
const OFTEN: Duration = Duration::from_secs(1);

/// `[retention]`; `None` is for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// Calls that have ended, with their attempts and batches.
    pub finished: Option<Duration>,
    /// Confirmations.
    pub results: Option<Duration>,
    /// The bodies of confirmations.
    pub result_bodies: Option<Duration>,
    /// What people did by hand, and their jobs.
    pub actions: Option<Duration>,
}

impl Retention {
    /// How long to wait between two looks for what has grown old: a small part of the shortest time that anything is kept.
    /// `None` where all is kept for ever.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        let times = [
            self.finished,
            self.results,
            self.result_bodies,
            self.actions,
        ];
        let shortest = times.into_iter().flatten().min()?;
        Some((shortest / 100).clamp(OFTEN, SELDOM))
    }
}
