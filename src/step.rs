//! The steps of a call's way at which the process can die, for the tests that kill it there.
//!
//! A process leaves traces in three places only: in the database (`store`), at a leaf (`leaf`), and in
//! `dispatch.state_dir` (`engine`). Each of these has one way out, which calls [`reached`]: so a new
//! statement is a new step by itself. In a build with debug assertions, [`VARIABLES`] name the
//! step at which the process kills itself with SIGKILL, or stops itself with SIGSTOP until somebody lets it go on, or at
//! which the task panics, and the log's target `leafhopper::step` lists those passed, at the level `trace`. In a release build there is
//! nothing.

/// The environment variables that name the step, as it stands in the log: `claim calls: done`. Of several, with
/// ` > ` between them, each counts only after the one before: `record attempts: done > claim calls: done`.
#[cfg(debug_assertions)]
const VARIABLES: [&str; 3] = [
    "LEAFHOPPER_CRASH_AT",
    "LEAFHOPPER_FREEZE_AT",
    "LEAFHOPPER_PANIC_AT",
];

/// A step is reached: `stage` of `place`.
#[cfg(debug_assertions)]
pub(crate) fn reached(place: &str, stage: &str) {
    use std::sync::{LazyLock, Mutex, PoisonError};

    use rustix::process::{Signal, getpid, kill_process};

    /// For each variable the steps that are still to come, the last one first.
    static AHEAD: LazyLock<[Mutex<Vec<String>>; 3]> = LazyLock::new(|| {
        VARIABLES.map(|variable| {
            let named = crate::config::process_env(variable).unwrap_or_default();
            let steps = named.rsplit(" > ").filter(|step| !step.is_empty());
            Mutex::new(steps.map(str::to_owned).collect())
        })
    });

    let step = format!("{place}: {stage}");
    tracing::trace!(target: "leafhopper::step", "{step}");
    let [crash, freeze, panic] = AHEAD.each_ref().map(|ahead| {
        let mut ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.pop_if(|next| *next == step).is_some() && ahead.is_empty()
    });
    if freeze {
        let stopped = kill_process(getpid(), Signal::STOP);
        // The signal is another thread's to take; this one must not go on until it has.
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread that blocks is what is wanted"
        )]
        std::thread::sleep(std::time::Duration::from_millis(300));
        tracing::trace!(target: "leafhopper::step", "goes on behind {step}: {stopped:?}");
    }
    if crash {
        let died = kill_process(getpid(), Signal::KILL);
        unreachable!("the process has survived SIGKILL: {died:?}");
    }
    assert!(!panic, "a test wants a panic, {step}");
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn reached(_place: &str, _stage: &str) {}
