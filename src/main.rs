//! The `leafhopper` program.

fn main() {}
