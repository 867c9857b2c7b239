//! The surface over HTTP: metrics and health, the API, and the operator's page.
//!
//! It reads what the engine and the store say, acts by the store's functions as the commands do, and never touches a
//! leaf. Who may do what is [`access`]'s to say.

mod access;
mod health;
mod problem;
mod tables;
mod tries;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use tokio::net::TcpListener;

use self::{access::Access, problem::Problem, tables::Looks};
use crate::{config::Listen, engine::Context, store::Store};

/// What the handlers share. The store is a small pool of their own: scrapes and pages wait for each other, and never
/// keep the engine from a connection.
#[derive(Clone)]
struct Surface {
    context: Arc<Context>,
    store: Store,
    access: Arc<Access>,
    looks: Arc<Looks>,
}

/// Serves until it is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    context: Arc<Context>,
    store: Store,
    listen: Listen,
) {
    let address = listener.local_addr().unwrap_or(listen.address);
    let access = Access::new(listen.admin_token, address, listen.hosts);
    let surface = Surface {
        context,
        store,
        access: Arc::new(access),
        looks: Arc::default(),
    };
    let router = Router::new()
        .merge(health::routes())
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .layer(middleware::from_fn_with_state(surface.clone(), guard))
        .with_state(surface);
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, service).await {
        tracing::error!("the HTTP listener has ended: {error}");
    }
}

/// On every answer. What a page may load is said here once: its own style and script, and nothing else.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not `no-referrer`: with that, a browser sends the page's own forms with `Origin: null`.
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Refuses what names another host, and puts the headers on.
async fn guard(State(surface): State<Surface>, request: Request, next: Next) -> Response {
    let mut response = if surface.access.is_our_host(request.headers()) {
        next.run(request).await
    } else {
        Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host header names a host that is not this one: localhost, an address, or a name of listen.hosts",
        )
        .into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
