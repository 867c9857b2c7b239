//! Leafhopper.

pub mod config;
pub mod domain;
pub mod leaf;
pub mod metrics;
mod observe;
pub mod shutdown;
pub mod store;
mod suggest;
