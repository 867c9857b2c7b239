//! Reads an answer's body up to a number of bytes (guarantee G13).

use bytes::{Bytes, BytesMut};
use reqwest::Response;

use super::redact::Secrets;

/// What is kept of a body.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: Bytes,
    pub(crate) truncated: bool,
}

/// Reads until the end, or until more than `bytes_max` have come: then the rest is not waited for, and the
/// connection is closed instead of drained.
///
/// # Errors
/// The body broke off.
pub(crate) async fn read(
    mut response: Response,
    bytes_max: usize,
    secrets: &Secrets,
) -> Result<Kept, reqwest::Error> {
    // A secret that the cut would go through has to be seen whole to be recognised.
    let read_max = bytes_max.saturating_add(secrets.longest());
    // Grows with what has come: a Content-Length is only a claim.
    let mut body = BytesMut::new();
    while body.len() <= read_max {
        let Some(chunk) = response.chunk().await? else {
            break;
        };
        // One byte more than is wanted tells a longer body from one that just fits.
        let room = read_max.saturating_add(1) - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    let truncated = body.len() > bytes_max;
    let mut bytes = secrets.redact_body(body.freeze());
    bytes.truncate(bytes_max);
    Ok(Kept { bytes, truncated })
}
