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

mod harness;

mod aborts;
mod alerts;
mod answers;
mod api;
mod app_role;
mod batch_commands;
mod broken_loops;
mod clients;
mod cluster;
mod commands;
mod configuration;
mod crashes;
mod database_cuts;
mod database_down;
mod demo;
mod deploy;
mod exact_requests;
mod examples;
mod failover;
mod faulty_leaves;
mod functions;
mod g01_atomic_intent;
mod g02_confirmed_means_confirmed;
mod g03_record_first;
mod g04_one_at_a_time;
mod g05_doubt_is_never_resent_blindly;
mod g06_nothing_is_lost;
mod g07_cancelled_means_not_sent;
mod g08_teardown_last;
mod g09_order;
mod g10_isolation;
mod g11_secrets;
mod g12_reach;
mod g13_bounded;
mod history;
mod instruments;
mod late;
mod leaving;
mod limits;
mod logs;
mod lost_commits;
mod migrations;
mod notifications;
mod open_transactions;
mod origin;
mod others_leaves;
mod outbox;
mod outcomes;
mod page;
mod pooler;
mod probe_races;
mod probes;
mod producer;
mod queries;
mod quiet;
mod reasons;
mod recipes;
mod recovering;
mod retention;
mod roles;
mod runbook;
mod shutdown;
mod signing;
mod state_dir;
mod stops;
mod storm;
mod surface;
mod tidy;
mod times;
mod tls;
mod told;
#[cfg(feature = "otel")]
mod traces;
mod turns;
mod untracked;
mod upgrades;
mod watching;
