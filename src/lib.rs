//! Leafhopper.

mod admin;
pub mod app;
pub mod config;
pub mod demo;
pub mod domain;
mod engine;
pub mod leaf;
pub mod metrics;
mod observe;
pub mod shutdown;
pub mod store;
mod suggest;
