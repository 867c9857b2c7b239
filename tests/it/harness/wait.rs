//! Waiting for something to be true: the only place where a test sleeps.
//!
//! A wait looks at the state itself, again and again, and is never woken by a change: nothing can be missed
//! that happened a moment before. It is bounded, and its failure says what was seen last.

use std::{fmt::Debug, time::Duration};

use tokio::time::Instant;

/// Generous: it is spent only by a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Who has waited long looks less often: many tests wait at once, and a look is a query.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);

/// Looks until `look` gives `Ok`, for at most [`LIMIT`]; an `Err` is what was seen instead.
pub(crate) async fn until<T, S: Debug>(what: &str, look: impl AsyncFnMut() -> Result<T, S>) -> T {
    until_within(LIMIT, what, look).await
}

/// As [`until`], with a limit of its own.
pub(crate) async fn until_within<T, S: Debug>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, S>,
) -> T {
    let started = Instant::now();
    loop {
        match look().await {
            Ok(value) => return value,
            Err(seen) if started.elapsed() >= limit => {
                panic!("waited {limit:?} until {what}; last seen: {seen:#?}")
            }
            Err(_) => {
                let pause = (started.elapsed() / 10).clamp(LOOK_EVERY, LOOK_AT_LEAST_EVERY);
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Looks for the whole time and panics as soon as `holds` gives an `Err`: for what must not happen.
pub(crate) async fn holds_for<S: Debug>(
    time: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> Result<(), S>,
) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if let Err(seen) = holds().await {
            panic!("{what} did not hold: {seen:#?}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The time that a scripted leaf takes over an answer. Not for waiting.
pub(crate) async fn service_time(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The time that a storm's fault lasts, or until its next one. Not for waiting.
pub(crate) async fn fault_lasts(time: Duration) {
    tokio::time::sleep(time).await;
}
