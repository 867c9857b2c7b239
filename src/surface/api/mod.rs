//! `/api/v1`: what the commands read and do, as JSON.
//!
//! A route is in the document by being one: both are made of the functions here and what stands before each. Who acts
//! on many calls gets a job, which goes on without the request.

mod act;
mod batches;
mod calls;
mod document;
mod filter;
mod jobs;
mod leaves;
mod query;
mod rows;
mod told;

use axum::{Router, http::StatusCode, middleware};
use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Surface, authorised, problem::Problem};

/// The routes and the document. None of them is open.
pub(super) fn routes() -> (Router<Surface>, OpenApi) {
    let (router, document) = OpenApiRouter::with_openapi(document::head())
        .routes(routes!(calls::list))
        .routes(routes!(calls::show))
        .routes(routes!(act::retry))
        .routes(routes!(act::resolve))
        .routes(routes!(act::cancel))
        .routes(routes!(act::release))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::resolve))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::release))
        .routes(routes!(batches::list))
        .routes(routes!(batches::show))
        .routes(routes!(batches::cancel))
        .routes(routes!(leaves::list))
        .routes(routes!(leaves::pause))
        .routes(routes!(leaves::resume))
        .routes(routes!(leaves::resume_all))
        .routes(routes!(leaves::instances))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(jobs::end))
        .routes(routes!(document::serve))
        .split_for_parts();
    (router, document::complete(document))
}

/// Asks each request whether it may.
pub(super) fn guarded(router: Router<Surface>, surface: &Surface) -> Router<Surface> {
    router.route_layer(middleware::from_fn_with_state(surface.clone(), authorised))
}

fn absent(detail: String) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, detail)
}
