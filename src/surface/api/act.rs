//! Changes of single calls and batches.

use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};

use super::{
    super::{Surface, problem::Problem},
    told::{Told, Words, by},
};
use crate::{
    domain::call::CallId,
    store::operator::act::{Change, Target},
};

/// What every change of a call takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Act {
    /// Why; it is kept with the action.
    reason: Words,
    /// Who acts; without one, the address that the request came from.
    actor: Option<Words>,
    /// Refuse if the call has another number of attempts by now.
    expect_attempts: Option<u32>,
}

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct Acted {
    /// The call.
    id: CallId,
    /// The state that it is in now.
    state: String,
}

/// Sends a failed call again.
pub(super) async fn retry(
    State(surface): State<Surface>,
    Path(id): Path<CallId>,
    told: Told<Act>,
) -> Result<Json<Acted>, Problem> {
    let Act {
        reason,
        actor,
        expect_attempts,
    } = told.said;
    let by = by(actor, reason, told.peer);
    let target = Target {
        id,
        attempts: expect_attempts,
    };
    let done = surface
        .stores
        .people
        .act_together(&by, Change::Retry, &[target])
        .await?;
    let (id, state) = done.into_iter().next().ok_or_else(|| super::no_call(id))?;
    Ok(Json(Acted { id, state }))
}
