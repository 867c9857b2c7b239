//! Reads of calls.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, Uri, header},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    super::{Surface, problem::Problem},
    filter::{CallFilter, CallPage},
    query::{Named, Query, next_link},
    rows,
};
use crate::{
    domain::call::CallId,
    present::{
        json::{self, Object},
        text::no_call,
    },
    store::operator::list::LOOKED,
};

/// A page of a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Items {
    Calls(Vec<Box<RawValue>>),
    Batches(Vec<Box<RawValue>>),
    Jobs(Vec<Box<RawValue>>),
}

/// The items under their name, and what to ask for the next page with.
#[derive(Debug, Serialize)]
struct Listed<N> {
    #[serde(flatten)]
    items: Items,
    next: Option<N>,
}

/// Makes an answer of the rows of a page and one more. `row`: its id and its JSON.
pub(super) fn page<R, N: Serialize + ToString>(
    mut found: Vec<R>,
    limit: usize,
    given_up: Option<N>,
    uri: &Uri,
    row: impl Fn(R) -> (N, String),
    items: impl Fn(Vec<Box<RawValue>>) -> Items,
) -> Result<Response, Problem> {
    let more = found.len() > limit;
    found.truncate(limit);
    let mut next = given_up;
    let mut jsons = Vec::with_capacity(found.len());
    for one in found {
        let (id, json) = row(one);
        jsons.push(RawValue::from_string(json)?);
        if more {
            next = Some(id);
        }
    }
    let mut headers = HeaderMap::new();
    if let Some(id) = &next {
        let link = HeaderValue::from_str(&next_link(uri, &id.to_string()));
        headers.extend(link.ok().map(|link| (header::LINK, link)));
    }
    let items = items(jsons);
    Ok((headers, Json(Listed { items, next })).into_response())
}

/// List calls, the newest first.
///
/// A page at a time: the header `Link` has the address of the next one, and `next` its `after`. Where few calls match, a page
/// may hold fewer than `limit`, even none, and have a next one: no request looks through more than twenty thousand.
#[utoipa::path(get, path = "/api/v1/calls", operation_id = "list_calls", tag = "calls",
    params(CallFilter, CallPage), responses((status = 200, description = "A page of calls.", body = rows::CallList)))]
pub(super) async fn list(
    State(surface): State<Surface>,
    uri: Uri,
    Query(filter, part): Query<CallFilter, CallPage>,
) -> Result<Response, Problem> {
    let store = &surface.stores.people;
    let (calls, given_up) = store
        .calls_among(&filter.into(), part.and_one(), LOOKED)
        .await?;
    page(
        calls,
        part.limit,
        given_up,
        &uri,
        |call| (call.id, call.json),
        Items::Calls,
    )
}

/// Show one call, with its attempts, its result, its batch, and what would move it.
#[utoipa::path(get, path = "/api/v1/calls/{id}", operation_id = "show_call", tag = "calls",
    params(("id" = i64, Path, description = "The call.")),
    responses((status = 200, description = "The call.", body = rows::CallDetails)))]
pub(super) async fn show(
    State(surface): State<Surface>,
    Named(id): Named<CallId>,
) -> Result<Json<Object>, Problem> {
    let details = surface.stores.people.call(id).await?;
    let Some(details) = details else {
        let pruned = surface.stores.people.may_have_been_pruned(id).await?;
        return Err(super::absent(no_call(id, pruned)));
    };
    let mut call = json::call(&details)?;
    if !surface.show_bodies {
        json::hide_bodies(&mut call)?;
    }
    Ok(Json(call))
}
