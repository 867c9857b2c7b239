//! What is read.
