//! Reads an answer's body up to a number of bytes, and all of them together up to another (guarantee G13).

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::{
    memory::{Held, Memory},
    redact::Secrets,
};

/// So much of an answer is read without asking for room. Most are smaller.
const SMALL: usize = 64 * 1024;

/// What is kept of a body.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: Bytes,
    pub(crate) truncated: bool,
}

/// Reads until the end, or until more than `bytes_max` have come: then the rest is not waited for, and the
/// connection is closed instead of drained.
///
/// A large one waits for room in `memory`, and keeps it until the bytes are dropped. Where none comes before the
/// deadline, the body is cut: what the leaf has said by its status counts, and is not to be doubted for lack of room.
///
/// # Errors
/// The body broke off.
pub(crate) async fn read(
    mut response: Response,
    bytes_max: usize,
    memory: &Memory,
    deadline: Instant,
    secrets: &Secrets,
) -> Result<Kept, reqwest::Error> {
    // A secret that the cut would go through has to be seen whole to be recognised.
    let read_max = bytes_max.saturating_add(secrets.longest());
    let announced = response
        .content_length()
        .and_then(|length| usize::try_from(length).ok());
    let mut held: Option<Held> = None;
    let mut no_room = false;
    // Grows with what has come: a Content-Length is only a claim.
    let mut body = BytesMut::new();
    while body.len() <= read_max {
        let Some(chunk) = response.chunk().await? else {
            break;
        };
        if held.is_none() && body.len() + chunk.len() > SMALL {
            // All at once: those who have a part each would wait for each other.
            let all = announced.map_or(read_max, |length| length.min(read_max));
            match timeout_at(deadline, memory.take(all)).await {
                Ok(room) => held = Some(room),
                Err(_elapsed) => {
                    no_room = true;
                    break;
                }
            }
        }
        // One byte more than is wanted tells a longer body from one that just fits.
        let room = read_max.saturating_add(1) - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    let truncated = no_room || body.len() > bytes_max;
    let is_cut = no_room || body.len() > read_max;
    let mut bytes = secrets.redact_body(body.freeze());
    // The cut may have gone through a secret; and what was redacted before it may have brought that nearer.
    let keep = if is_cut {
        bytes.len().saturating_sub(secrets.longest())
    } else {
        bytes_max
    };
    bytes.truncate(keep.min(bytes_max));
    if let Some(held) = held {
        bytes = held.by(bytes);
    }
    Ok(Kept { bytes, truncated })
}
