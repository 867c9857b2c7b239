//! PostgreSQL: the only module that says SQL. Knows rows, not policy.

pub mod connect;
