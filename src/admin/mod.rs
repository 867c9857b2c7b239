//! The surface over HTTP: `/metrics`, `/livez` (the loops turn) and `/readyz` (claims and records work).
//!
//! It reads what the engine and the store say, and never touches a leaf. None of these shows a row.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{engine::Context, store::StoreError};

/// A scrape is answered within this time, with what is known by then.
const SCRAPE_LIMIT: Duration = Duration::from_secs(5);

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, context: Arc<Context>) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .with_state(context);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!("the HTTP listener has ended: {error}");
    }
}

async fn live(State(context): State<Arc<Context>>) -> Response {
    let stalled = context.turns.stalled();
    if stalled.is_empty() {
        return (StatusCode::OK, "ok\n").into_response();
    }
    let text = format!("these loops do not turn: {}\n", stalled.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn ready(State(context): State<Arc<Context>>) -> Response {
    match context.unready() {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(context): State<Arc<Context>>) -> Response {
    let metrics = context.observer.metrics();
    // A database that is away must not hide what the process itself knows.
    match tokio::time::timeout(SCRAPE_LIMIT, gather(&context)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => context.failed(&error),
        Err(_elapsed) => metrics.database_up.set(0),
    }
    for lane in context.lanes.all() {
        let leaf = [lane.name.as_str()];
        metrics
            .in_flight
            .with_label_values(&leaf)
            .set(i64::from(lane.in_flight()));
        metrics
            .breaker_open
            .with_label_values(&leaf)
            .set(i64::from(lane.breaker_is_open()));
    }
    let content_type = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (content_type, metrics.render()).into_response()
}

async fn gather(context: &Context) -> Result<(), StoreError> {
    let known = context.lanes.names();
    let metrics = context.observer.metrics();
    metrics.set_counts(&known, &context.store.counts().await?);
    metrics.set_overview(&known, &context.store.overview().await?);
    Ok(())
}
