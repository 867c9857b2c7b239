//! What the TLS library says, found among an error's causes.

use std::{error::Error, io};

/// The TLS library's error, which `io::Error` hides from the chain of causes, and one `io::Error` in another.
pub(crate) fn error_in<'error>(
    error: &'error (dyn Error + 'static),
) -> Option<&'error rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let within = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match within {
            Some(within) => Some(within),
            None => error.source(),
        };
    }
    None
}
