//! A call.
