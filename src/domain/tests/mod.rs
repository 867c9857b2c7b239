//! The rules as tables: every case that there is, or, where there are too many, properties of all of them.

mod decisions;
mod outcomes;
mod signatures;
mod templates;
mod values;
