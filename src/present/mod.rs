//! What people are told: of a call or a batch why it is where it is, what would move it, and all that is known of it as
//! one JSON object; of a leaf what it is sent, and what keeps it from that.
//!
//! The command line, the HTTP API and the page say the same, since they say it from here.

pub(crate) mod explain;
pub(crate) mod explain_batch;
pub(crate) mod json;
mod kept;
pub(crate) mod leaves;
mod lines;
pub(crate) mod remedy;
pub(crate) mod standing;
pub(crate) mod text;
