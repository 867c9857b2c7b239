//! What people ask for.
