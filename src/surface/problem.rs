//! Errors as `application/problem+json` (RFC 9457).

use std::sync::Arc;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::access::{Denied, seconds};
use crate::store::{StoreError, operator::act::ActError};

/// What went wrong with a request. `type` is absent: the status says what kind it is (RFC 9457, section 4.2.1).
#[derive(Debug, Clone, Serialize)]
pub(super) struct Problem {
    /// The status of the answer.
    #[serde(serialize_with = "as_number")]
    status: StatusCode,
    /// The status in words.
    title: &'static str,
    /// What is wrong with this request, and what would be right.
    detail: String,
    /// What to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip)]
    header: Option<Box<(header::HeaderName, HeaderValue)>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn as_number<S: serde::Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

impl Problem {
    /// A problem with this status.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            title: status.canonical_reason().unwrap_or("Error"),
            detail: detail.into(),
            hint: None,
            header: None,
        }
    }

    /// The status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// A header that goes with it.
    pub(super) fn header(&self) -> Option<(header::HeaderName, HeaderValue)> {
        self.header.as_deref().cloned()
    }

    /// What to do instead.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let status = match denied {
            Denied::NoToken | Denied::WrongToken => StatusCode::UNAUTHORIZED,
            Denied::TooManyTries { .. } => StatusCode::TOO_MANY_REQUESTS,
            Denied::NoneConfigured | Denied::Proxied | Denied::ForeignOrigin => {
                StatusCode::FORBIDDEN
            }
        };
        let mut problem = Self::new(status, denied.to_string());
        let header = match denied {
            Denied::NoToken | Denied::WrongToken => Some((
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"leafhopper\""),
            )),
            Denied::TooManyTries { retry_after } => {
                Some((header::RETRY_AFTER, seconds(retry_after).into()))
            }
            Denied::NoneConfigured | Denied::Proxied | Denied::ForeignOrigin => None,
        };
        problem.header = header.map(Box::new);
        problem
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<Arc<StoreError>> for Problem {
    fn from(error: Arc<StoreError>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("what the database has written is no JSON: {error}"),
        )
    }
}

impl From<ActError> for Problem {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Store(error) => error.into(),
            ActError::Refused(refusal) => {
                let status = if refusal.absent {
                    StatusCode::NOT_FOUND
                } else {
                    StatusCode::CONFLICT
                };
                let problem = Self::new(status, refusal.message);
                match refusal.hint {
                    Some(hint) => problem.hint(hint),
                    None => problem,
                }
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, extra) = (self.status, self.header.clone());
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some((name, value)) = extra.map(|extra| *extra) {
            headers.insert(name, value);
        }
        response
    }
}
