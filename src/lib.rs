//! Leafhopper.

pub mod cli;
pub mod config;
pub mod domain;
pub mod leaf;
pub mod store;
