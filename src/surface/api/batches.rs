//! Batches.

use axum::{Json, extract::State, http::Uri, response::Response};
use uuid::Uuid;

use super::{
    super::{Surface, problem::Problem},
    act::{Act, ChangedBatch},
    calls::{Items, page},
    filter::{BatchFilter, BatchPage},
    query::{Named, Query},
    rows,
    told::{Told, by},
};
use crate::{
    present::{
        json::{self, Object},
        text::no_batch,
    },
    store::operator::batches,
};

/// List batches, the newest first.
///
/// A page at a time: the header `Link` has the address of the next one, and `next` its `after`.
#[utoipa::path(get, path = "/api/v1/batches", operation_id = "list_batches", tag = "batches",
    params(BatchFilter, BatchPage), responses((status = 200, description = "A page of batches.", body = rows::BatchList)))]
pub(super) async fn list(
    State(surface): State<Surface>,
    uri: Uri,
    Query(filter, part): Query<BatchFilter, BatchPage>,
) -> Result<Response, Problem> {
    let filter = batches::BatchFilter {
        state: filter.state.map(|state| state.name().to_owned()),
        stuck: filter.stuck,
    };
    let found = surface
        .stores
        .people
        .batches(&filter, part.after, part.limit + 1)
        .await?;
    page(
        found,
        part.limit,
        None,
        &uri,
        |batch| (batch.id, batch.json),
        Items::Batches,
    )
}

/// Show one batch: what its calls did, what it waits for, what stands, and what would move it.
#[utoipa::path(get, path = "/api/v1/batches/{id}", operation_id = "show_batch", tag = "batches",
    params(("id" = Uuid, Path, description = "The batch.")),
    responses((status = 200, description = "The batch.", body = rows::BatchDetails)))]
pub(super) async fn show(
    State(surface): State<Surface>,
    Named(id): Named<Uuid>,
) -> Result<Json<Object>, Problem> {
    let details = surface.stores.people.batch(id).await?;
    let details = details.ok_or_else(|| super::absent(no_batch(id)))?;
    Ok(Json(json::batch(&details)?))
}

/// Cancel a batch: what waits is not sent, what was confirmed is undone.
#[utoipa::path(post, path = "/api/v1/batches/{id}/cancel", operation_id = "cancel_batch", tag = "batches",
    params(("id" = Uuid, Path, description = "The batch.")), request_body = Act,
    responses((status = 200, description = "It is cancelled.", body = ChangedBatch)))]
pub(super) async fn cancel(
    State(surface): State<Surface>,
    Named(id): Named<Uuid>,
    told: Told<Act>,
) -> Result<Json<ChangedBatch>, Problem> {
    let by = by(told.said.actor, told.said.reason, told.peer);
    let state = surface.stores.people.cancel_batch(&by, id).await?;
    Ok(Json(ChangedBatch { id, state }))
}
