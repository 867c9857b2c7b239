//! What the words mean, and every rule that needs nothing but values.
//!
//! Nothing in here is async, does I/O, reads a clock, draws a random number or logs. What a rule needs
//! of the world is an argument. That is what makes each rule a table that a test can list in full. (The
//! one exception is the jitter of [`schedule`], which its crate draws itself.)
//!
//! | word | meaning |
//! | --- | --- |
//! | call | one outbox row: the intent to make one request that has one effect on a leaf |
//! | leaf | the remote HTTP service at the end of the hop |
//! | effect key | names the effect in the leaf's world; two calls with one leaf and key mean one effect |
//! | claim | a call taken by one instance under one round, written down before anything is sent |
//! | attempt | one HTTP request made for a call |
//! | evidence | what was seen on the wire, never a judgement |
//! | outcome | what the evidence means: confirmed, exists, retry, in doubt, failed |
//! | decision | what follows from the outcome for this call: its next state, and when |
//! | confirmation | the leaf's word that the effect exists: a row of `leafhopper.result` |
//! | in doubt | an attempt may have been executed, and no confirmation is known |
//! | probe | a read-only request that asks the leaf whether the effect exists |
//! | verdict | what a probe's answer says; also a leaf's own expression over its answers |
//! | adopt | to record as the confirmation what a probe found |
//! | settle | said of an absence: the attempt can have no effect any more |
//! | park | to stop and wait until a person or the app says what is true |
//! | held | said of a call that may not be claimed: it waits for a key, its turn, or its batch's phase |
//! | head | the one call of an ordering key that may be sent |
//! | batch | calls that stand or fall together |
//! | compensation | the call that undoes a confirmed effect of a batch that failed |
//! | follow-up | a call of a batch that waits for the batch's end |
//! | teardown | a failed batch's way to its end: what it confirmed is undone |
//! | mark | a row that says: look at this batch |
//! | instance | one running sidecar process; any number share one database |
//! | untracked | said of a call that the insert trigger did not see |
//! | prune | to take away the rows of what has ended long ago |
#![deny(
    clippy::wildcard_enum_match_arm,
    clippy::match_wildcard_for_single_variants
)]

pub mod address;
mod bounds;
pub mod call;
pub mod compensation;
pub mod decision;
pub mod evidence;
pub mod outcome;
pub mod path;
pub mod probe;
pub mod request;
pub mod retention;
pub mod schedule;
pub mod signature;
pub mod template;
pub mod trace;

#[cfg(test)]
mod tests;
