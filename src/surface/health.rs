//! `/metrics`, `/livez` (the loops turn) and `/readyz` (claims and records work).

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use super::Surface;
use crate::store::StoreError;

/// A scrape is answered within this time, with what is known by then.
const SCRAPE_LIMIT: Duration = Duration::from_secs(5);

/// `/metrics`, `/livez` and `/readyz`: open to everybody, and none of them shows a row.
pub(super) fn routes() -> Router<Surface> {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
}

async fn live(State(surface): State<Surface>) -> Response {
    let stalled = surface.context.stalled();
    if stalled.is_empty() {
        return (StatusCode::OK, "ok\n").into_response();
    }
    let text = format!("these loops do not turn: {}\n", stalled.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn ready(State(surface): State<Surface>) -> Response {
    match surface.context.unready() {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(surface): State<Surface>) -> Response {
    let context = &surface.context;
    let metrics = context.observer.metrics();
    // A database that is away must not hide what the process itself knows.
    match tokio::time::timeout(SCRAPE_LIMIT, gather(&surface)).await {
        Ok(Ok(())) => {}
        // What was seen last stands; the failure is told where it was met.
        Ok(Err(_failed)) => {}
        // The look goes on, and what was seen last stands until it has ended.
        Err(_elapsed) => {}
    }
    metrics
        .database_changed
        .set(i64::from(!context.may_go_on()));
    for lane in context.lanes.all() {
        let leaf = [lane.name.as_str()];
        metrics
            .in_flight
            .with_label_values(&leaf)
            .set(i64::from(lane.in_flight()));
        metrics
            .concurrency_limit
            .with_label_values(&leaf)
            .set(i64::from(lane.limit()));
        metrics
            .breaker_open
            .with_label_values(&leaf)
            .set(i64::from(lane.breaker_is_open()));
    }
    metrics.forget_gone(&context.lanes.names());
    let content_type = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (content_type, metrics.render()).into_response()
}

async fn gather(surface: &Surface) -> Result<(), Arc<StoreError>> {
    let tables = surface.tables().await?;
    let known = surface.context.lanes.names();
    let metrics = surface.context.observer.metrics();
    metrics.set_counts(&known, &tables.counts);
    metrics.set_overview(&known, &tables.overview);
    Ok(())
}
