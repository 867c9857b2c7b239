//! The steps of a call's way at which the process can die, for the tests that kill it there.
//!
//! A process leaves traces in three places only: in the database (`store`), at a leaf (`leaf`), and in
//! `dispatch.state_dir` (`engine`). Each of these has one way out, which calls [`reached`]: so a new
//! statement is a new step by itself. In a build with debug assertions, [`VARIABLE`] names the
//! step at which the process kills itself with SIGKILL, and the log's target `leafhopper::step` lists those
//! passed, at the level `trace`. In a release build there is nothing.

/// The environment variable that names the step, as it stands in the log: `claim calls: done`. Of several, with
/// ` > ` between them, each counts only after the one before: `record attempts: done > claim calls: done`.
#[cfg(debug_assertions)]
const VARIABLE: &str = "LEAFHOPPER_CRASH_AT";

/// A step is reached: `stage` of `place`.
#[cfg(debug_assertions)]
pub(crate) fn reached(place: &str, stage: &str) {
    use std::sync::{LazyLock, Mutex, PoisonError};

    /// The steps that are still to come, the last one first.
    static AHEAD: LazyLock<Mutex<Vec<String>>> = LazyLock::new(|| {
        let named = crate::config::process_env(VARIABLE).unwrap_or_default();
        let steps = named.rsplit(" > ").filter(|step| !step.is_empty());
        Mutex::new(steps.map(str::to_owned).collect())
    });

    let step = format!("{place}: {stage}");
    tracing::trace!(target: "leafhopper::step", "{step}");
    let mut ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
    if ahead.pop_if(|next| *next == step).is_some() && ahead.is_empty() {
        use rustix::process::{Signal, getpid, kill_process};

        let died = kill_process(getpid(), Signal::KILL);
        unreachable!("the process has survived SIGKILL: {died:?}");
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn reached(_place: &str, _stage: &str) {}
