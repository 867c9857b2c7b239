//! What the TLS of the database and that of leaves have in common.

use std::{error::Error, io};

use sha2::{Digest as _, Sha256};

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

/// Tells what files hold apart, without keeping a key.
pub(crate) fn digest<'part>(parts: impl IntoIterator<Item = &'part [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
