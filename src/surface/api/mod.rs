//! `/api/v1`: what the commands read and do, as JSON.

mod act;
mod calls;
mod told;

use axum::{
    Router,
    http::StatusCode,
    middleware,
    routing::{get, post},
};

use super::{Surface, authorised, problem::Problem};
use crate::domain::call::CallId;

/// All of it. None of it is open.
pub(super) fn routes(surface: &Surface) -> Router<Surface> {
    Router::new()
        .route("/api/v1/calls/{id}", get(calls::call))
        .route("/api/v1/calls/{id}/retry", post(act::retry))
        .route_layer(middleware::from_fn_with_state(surface.clone(), authorised))
}

fn no_call(id: CallId) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is no call {id}"))
}
