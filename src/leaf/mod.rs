//! The leaf client.
