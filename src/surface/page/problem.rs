//! What is shown instead of a page.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::{render, visit::Visit};
use crate::{store::StoreError, surface::problem::Problem};

/// A page that says why there is no other.
#[derive(Debug)]
pub(super) struct PageProblem {
    // Rendered, and a pointer: it is an error's size that each result has.
    response: Box<Response>,
}

impl PageProblem {
    /// For somebody who may read.
    pub(super) fn new(visit: &Visit, problem: &Problem) -> Self {
        let mut response = render::page(visit, problem.status(), "problem.html", problem);
        if let Some((name, value)) = problem.header() {
            response.headers_mut().insert(name, value);
        }
        Self {
            response: Box::new(response),
        }
    }

    /// There is no such thing.
    pub(super) fn none(visit: &Visit, what: &str) -> Self {
        let hint = "what has ended is kept for as long as [retention] says";
        let problem = Problem::new(StatusCode::NOT_FOUND, what).hint(hint);
        Self::new(visit, &problem)
    }
}

/// The database did not answer.
pub(super) fn from_store(visit: &Visit, error: StoreError) -> PageProblem {
    let hint =
        "nothing is lost: what leaves have answered is kept, and written down once it is back";
    PageProblem::new(visit, &Problem::from(error).hint(hint))
}

impl IntoResponse for PageProblem {
    fn into_response(self) -> Response {
        *self.response
    }
}
