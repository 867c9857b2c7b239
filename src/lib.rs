//! Leafhopper makes calls to other people's services happen once, from an outbox in PostgreSQL.
//!
//! A call's life: the app inserts a row; [`engine`] claims it ([`store`]), sends it ([`leaf`]), judges what was
//! seen ([`domain`]) and records it ([`store`] again). Read `engine/attempt.rs` first: it is that sentence as
//! code. The map, the invariants and the reasons are in `ARCHITECTURE.md`.
//!
//! Which way things depend: `domain` on nothing of ours; `store` and `leaf` on `domain`, not on each other;
//! `engine` on all three; `present` on `store`; `surface` and `cli` on `present`, `store` and the engine's status. `tests/it/tidy.rs` keeps it so.

pub mod app;
pub mod cli;
pub mod config;
pub mod demo;
pub mod domain;
mod engine;
pub mod leaf;
pub mod metrics;
mod observe;
mod present;
pub mod shutdown;
mod step;
pub mod store;
mod suggest;
mod surface;
mod systemd;
mod telemetry;
mod tls;
