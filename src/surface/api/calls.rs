//! Calls.

use axum::{
    Json,
    extract::{Path, State},
};

use super::super::{Surface, problem::Problem};
use crate::{
    domain::call::CallId,
    present::json::{self, Object},
};

/// One call with everything that is known of it.
pub(super) async fn call(
    State(surface): State<Surface>,
    Path(id): Path<CallId>,
) -> Result<Json<Object>, Problem> {
    let details = surface.stores.people.call(id).await?;
    let details = details.ok_or_else(|| super::no_call(id))?;
    Ok(Json(json::call(&details)?))
}
