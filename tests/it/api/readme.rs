//! The README's examples of the API, as they stand there.
