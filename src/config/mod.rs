//! Configuration.

mod model;

pub use model::*;
