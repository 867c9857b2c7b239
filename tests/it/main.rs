//! What leafhopper promises, one module for each promise, on a real PostgreSQL and real HTTP.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a failing test shows what it has seen"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the bans keep the sidecar's own tasks, environment and bodies in one place each"
)]
#![allow(dead_code, reason = "the harness offers what the next test needs")]

mod harness;

mod cluster;
mod configuration;
mod g07_cancelled_means_not_sent;
mod g09_order;
mod g10_isolation;
mod g11_secrets;
mod g12_reach;
mod g13_bounded;
mod instruments;
mod limits;
mod surface;
mod tidy;
mod times;
