//! The operator's page: rendered here, without a framework or a build step, and usable without its script.
//!
//! Each page is a template of `html/` that is given the values of one `struct`; `render` is the only place where they
//! become HTML. The script of `static/` asks for the page that is on the screen again and again, and puts in what has
//! changed.

mod act;
mod actions;
mod assets;
mod batch;
mod body;
mod bulk;
mod call;
mod form;
mod job;
mod lanes;
mod latency;
mod lists;
mod login;
mod overview;
mod problem;
mod render;
mod search;
mod session;
mod timeline;
mod view;
mod visit;
mod watched;

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};

use self::watched::Watched;
use super::{Surface, problem::Problem};
use crate::store::Store;

/// What the page's handlers share.
#[derive(Debug, Default)]
pub(super) struct Page {
    watched: Watched,
}

impl Surface {
    /// The way to the database for what a person waits for.
    fn people(&self) -> &Store {
        &self.stores.people
    }

    /// Something was changed by hand: what was read before is not shown any more.
    fn forget(&self) {
        self.looks.forget();
        self.page.watched.forget();
    }
}

/// There is nothing at a path: a page for a browser, and for programs what they read.
pub(super) fn nothing(headers: &HeaderMap) -> Response {
    let problem = Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path");
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/html")) {
        visit::problem(problem)
    } else {
        problem.into_response()
    }
}

/// The page's paths. What is no GET acts, and needs the right to.
pub(super) fn routes() -> Router<Surface> {
    Router::new()
        .route("/", get(overview::overview).post(act::on_all))
        .route("/calls", get(lists::calls).post(bulk::on_calls))
        .route("/jobs", get(job::jobs))
        .route("/jobs/{id}", get(job::job).post(job::on_job))
        .route("/calls/{id}", get(call::call).post(act::on_call))
        .route("/batches", get(lists::batches))
        .route("/batches/{id}", get(batch::batch).post(act::on_batch))
        .route("/leaves/{leaf}", post(act::on_leaf))
        .route("/search", get(search::search))
        .route("/login", get(login::ask).post(login::open))
        .route("/logout", post(login::close))
        .merge(assets::routes())
}
