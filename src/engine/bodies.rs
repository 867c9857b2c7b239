//! Bodies that were left in the database by the claim: read when it is their turn and there is room for them.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;

use super::{
    context::{Nudges, Shared},
    lane::{Lane, Place},
};
use crate::{
    domain::call::{CallId, Claimed},
    shutdown::Nudge,
    store::StoreError,
};

/// Reads the body of a claimed call. `false` where it can't be had now: one that finds no room within `patience` is given
/// back, as one that finds no place.
pub(super) async fn read(
    context: &Shared,
    lane: &Lane,
    call: &mut Claimed,
    place: &mut Place,
    patience: Duration,
) -> bool {
    if !place.turn(patience, &context.stop.claiming).await {
        return false;
    }
    match held_and_read(context, lane, call.id, patience).await {
        Ok(Some(body)) => {
            call.read(body);
            true
        }
        Ok(None) => false,
        Err(error) => {
            context.failed(&error);
            false
        }
    }
}

async fn held_and_read(
    context: &Shared,
    lane: &Lane,
    call: CallId,
    patience: Duration,
) -> Result<Option<Option<Bytes>>, StoreError> {
    let size = size(context, call).await?;
    let settings = lane.settings();
    let room = settings.bodies.take(size);
    // While one waits, no more are claimed.
    let waits = Waits::of(lane, &context.nudges);
    let held = tokio::select! {
        held = tokio::time::timeout(patience, room) => held.ok(),
        () = context.stop.claiming.cancelled() => None,
    };
    drop(waits);
    let Some(held) = held else {
        return Ok(None);
    };
    let _turn = context.reading.acquire().await;
    let body = context.store.read_body(call).await?;
    Ok(Some(body.map(|body| held.by(body))))
}

/// A claimed call that waits for room.
struct Waits<'lane> {
    lane: &'lane Lane,
    freed: Nudge,
}

impl<'lane> Waits<'lane> {
    fn of(lane: &'lane Lane, nudges: &Nudges) -> Self {
        lane.waits_for_room.fetch_add(1, Ordering::SeqCst);
        Self {
            lane,
            freed: nudges.slot.clone(),
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let was = self.lane.waits_for_room.fetch_sub(1, Ordering::SeqCst);
        if was == 1 && self.lane.has_backlog() {
            self.freed.give();
        }
    }
}

async fn size(context: &Shared, call: CallId) -> Result<usize, StoreError> {
    let _turn = context.reading.acquire().await;
    context.store.size_of_body(call).await
}
