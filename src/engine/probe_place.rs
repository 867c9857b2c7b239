//! The place of one probe.

use tokio::sync::OwnedSemaphorePermit;

use super::{context::Nudges, lane::Place};
use crate::shutdown::Nudge;

/// A probe's place, and its turn where it is for a large call.
#[derive(Debug)]
pub(crate) struct ProbePlace {
    turn: Option<OwnedSemaphorePermit>,
    next: Nudge,
    _place: Place,
}

impl ProbePlace {
    pub(super) fn new(turn: Option<OwnedSemaphorePermit>, place: Place, nudges: &Nudges) -> Self {
        Self {
            turn,
            next: nudges.doubt.clone(),
            _place: place,
        }
    }
}

impl Drop for ProbePlace {
    fn drop(&mut self) {
        // The turn first: who is told finds it free.
        if self.turn.take().is_some() {
            self.next.give();
        }
    }
}
