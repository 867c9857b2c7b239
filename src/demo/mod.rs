//! What `leafhopper demo` and the tests stand on: a PostgreSQL server that is thrown away afterwards.

pub mod binaries;
pub mod cluster;
mod error;
mod place;
mod server;
