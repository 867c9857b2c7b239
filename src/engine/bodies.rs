//! Bodies that were left in the database by the claim: read when it is their turn and there is room for them.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    context::{Nudges, Shared},
    dispatcher::PUT_OFF,
    lane::{Lane, Place},
    places,
};
use crate::{
    domain::call::{CallId, Claimed},
    shutdown::Nudge,
    store::StoreError,
};

/// Reads the body of a claimed call. Where it can't be had now, says after what time to try again: at once where there was no
/// room for it within its patience, later where the database did not give it.
pub(super) async fn read(
    context: &Shared,
    lane: &Lane,
    call: &mut Claimed,
    place: &mut Place,
) -> Result<(), Duration> {
    let timeout = call.timeout.unwrap_or(lane.settings().leaf.timeout);
    if !place
        .turn(places::patience(timeout), &context.stop.claiming)
        .await
    {
        return Err(Duration::ZERO);
    }
    held_and_read(context, lane, call, timeout)
        .await
        .unwrap_or_else(|error| {
            context.failed(&error);
            Err(PUT_OFF)
        })
}

async fn held_and_read(
    context: &Shared,
    lane: &Lane,
    call: &mut Claimed,
    timeout: Duration,
) -> Result<Result<(), Duration>, StoreError> {
    let size = size(context, call.id).await?;
    let settings = lane.settings();
    let patience = if settings.bodies.is_most(size) {
        // It waits until nearly all others have ended, or never has its turn.
        timeout / 2
    } else {
        places::patience(timeout)
    };
    let room = settings.bodies.take(size);
    // While one waits, no more are claimed.
    let waits = Waits::of(lane, &context.nudges);
    let held = tokio::select! {
        held = tokio::time::timeout(patience, room) => held.ok(),
        () = context.stop.claiming.cancelled() => None,
    };
    drop(waits);
    let Some(held) = held else {
        return Ok(Err(Duration::ZERO));
    };
    let _turn = context.reading.acquire().await;
    let body = context.store.read_body(call.id).await?;
    call.read(body.map(|body| held.by(body)));
    Ok(Ok(()))
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
