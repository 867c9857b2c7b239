//! Leafhopper.

pub mod config;
pub mod demo;
pub mod domain;
pub mod leaf;
