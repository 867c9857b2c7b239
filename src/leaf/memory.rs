//! How many bytes the bodies of one leaf may take at once (guarantee G13).

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is counted: a semaphore's number is too small for bytes.
const UNIT: usize = 1024;

/// Room for bodies. Who waits for some gets it in turn.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    room: Arc<Semaphore>,
    units: u32,
}

impl Memory {
    /// Room for so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let units = units(bytes);
        Self {
            room: Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(usize::MAX))),
            units,
        }
    }

    /// Whether so many bytes are more than half of it.
    pub(crate) fn is_most(&self, bytes: usize) -> bool {
        units(bytes) > self.units / 2
    }

    /// Waits until there is room for so many bytes. What is larger than all of it goes alone.
    pub(crate) async fn take(&self, bytes: usize) -> Held {
        let units = units(bytes).min(self.units);
        let permit = Arc::clone(&self.room).acquire_many_owned(units).await;
        Held {
            _permit: permit.ok(),
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX)
}

/// Bytes that are taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// The bytes that it was taken for: given back when the last of them is.
    pub(crate) fn by(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Owned { bytes, _held: self })
    }
}

struct Owned {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn bytes_are_taken_until_the_last_copy_is_gone() {
        let memory = Memory::new(10 * UNIT);
        let held = memory.take(6 * UNIT).now_or_never().unwrap();
        let body = held.by(Bytes::from_static(b"body"));
        let part = body.slice(1..2);
        assert!(memory.take(5 * UNIT).now_or_never().is_none());
        assert!(memory.take(4 * UNIT).now_or_never().is_some());
        drop(body);
        assert!(memory.take(5 * UNIT).now_or_never().is_none());
        drop(part);
        assert!(memory.take(5 * UNIT).now_or_never().is_some());
    }

    #[test]
    fn what_is_larger_than_all_goes_alone() {
        let memory = Memory::new(10 * UNIT);
        let small = memory.take(1).now_or_never().unwrap();
        assert!(memory.take(usize::MAX).now_or_never().is_none());
        drop(small);
        let all = memory.take(usize::MAX).now_or_never().unwrap();
        assert!(memory.take(1).now_or_never().is_none());
        drop(all);
    }
}
