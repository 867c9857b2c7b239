//! The surface over HTTP: metrics and health, the API, and the operator's page.
//!
//! It reads what the engine and the store say, acts by the store's functions as the commands do, and never touches a
//! leaf. Who may do what is [`access`]'s to say.

mod access;
mod api;
mod health;
mod looks;
mod meant;
mod page;
mod problem;
mod server;
mod slots;
mod tables;
mod tries;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{
    access::{Access, Right},
    looks::Looks,
    page::Page,
    problem::Problem,
    tables::{Seen, Tables},
};
use crate::{
    config::Listen,
    engine::Context,
    shutdown::Tasks,
    store::{Store, StoreError},
};

/// What the handlers share.
#[derive(Clone)]
struct Surface {
    context: Arc<Context>,
    stores: Stores,
    access: Arc<Access>,
    looks: Arc<Looks<Seen>>,
    tasks: Tasks,
    page: Arc<Page>,
    show_bodies: bool,
    /// The API's description of itself.
    document: Bytes,
}

impl Surface {
    /// What the tables hold, or held a moment ago. A failure is told once, however many it keeps from an answer.
    async fn tables(&self) -> Seen {
        let read = || {
            let (context, store) = (Arc::clone(&self.context), self.stores.scrapes.clone());
            async move {
                let read = Tables::read(&store).await;
                let read = read.inspect_err(|error| context.failed(error));
                read.map(Arc::new).map_err(Arc::new)
            }
        };
        let seen = self.looks.look(&self.tasks, tables::good_for, read).await;
        let panicked = || StoreError::other("look at the tables", "it panicked");
        seen.unwrap_or_else(|| Err(Arc::new(panicked())))
    }
}

/// The surface's own ways to the database: it never keeps the engine from a connection.
#[derive(Debug, Clone)]
pub(crate) struct Stores {
    /// For scrapes, which must not wait for a person's action that waits for a lock.
    pub(crate) scrapes: Store,
    /// For the API and the page.
    pub(crate) people: Store,
}

/// Serves until `end`. Who waits for `tasks` waits for the answers that are under way then.
pub(crate) async fn serve(
    listener: TcpListener,
    context: Arc<Context>,
    stores: Stores,
    listen: Listen,
    tasks: Tasks,
    end: CancellationToken,
) {
    let address = listener.local_addr().unwrap_or(listen.address);
    let access = Access::new(listen.admin_token, address, listen.hosts);
    let (api, document) = api::routes();
    let surface = Surface {
        context,
        stores,
        access: Arc::new(access),
        looks: Arc::default(),
        tasks: tasks.clone(),
        page: Arc::default(),
        show_bodies: listen.show_bodies,
        document: document
            .to_pretty_json()
            .expect("a document is JSON by its type")
            .into(),
    };
    let router = Router::new()
        .merge(health::routes())
        .merge(api::guarded(api, &surface))
        .merge(page::routes())
        .fallback(async |headers: HeaderMap| page::nothing(&headers))
        .method_not_allowed_fallback(async |method: Method| {
            let detail = format!("{method} is not for this path; the header Allow says what is");
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        })
        .layer(middleware::from_fn(server::in_time))
        .layer(middleware::from_fn_with_state(surface.clone(), guard))
        .with_state(surface);
    server::serve(listener, router, &tasks, end).await;
}

/// Lets through what shows the token, or comes from this machine where there is none. What is no GET or HEAD acts.
async fn authorised(
    State(surface): State<Surface>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let right = match *request.method() {
        Method::GET | Method::HEAD => Right::Read,
        _ => Right::Act,
    };
    surface
        .access
        .check(right, request.headers(), peer.ip(), false)?;
    Ok(next.run(request).await)
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
    let ours = surface.access.is_our_host(request.uri(), request.headers());
    let mut response = if ours {
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
