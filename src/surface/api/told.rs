//! What a request says, read strictly: what is not understood is refused by its name, and never ignored.

use std::net::{IpAddr, SocketAddr};

use axum::{
    Json,
    extract::{ConnectInfo, FromRequest, FromRequestParts as _, Request},
    http::{HeaderMap, StatusCode, header},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::super::{Surface, problem::Problem, server};
use crate::store::operator::act::By;

/// A reason or an actor is no longer than this.
const WORDS_MAX: usize = 1000;

/// A JSON object, and where it came from.
#[derive(Debug)]
pub(super) struct Told<T> {
    pub(super) said: T,
    pub(super) peer: IpAddr,
}

impl<T: DeserializeOwned> FromRequest<Surface> for Told<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, surface: &Surface) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            // Of the three types that a page may send to another origin without asking first, none is this.
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "an action is said as JSON, with the header `Content-Type: application/json`",
            ));
        }
        let peer = ConnectInfo::<SocketAddr>::from_request_parts(&mut parts, surface).await;
        let ConnectInfo(peer) = peer.map_err(|missing| {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, missing.to_string())
        })?;
        let bytes = server::body(body, server::BODY_BYTES_MAX).await?;
        let Json(said) = Json::<T>::from_bytes(&bytes).map_err(|rejection| {
            let text = rejection.body_text();
            let flaw = text
                .rsplit_once("target type: ")
                .map_or(text.as_str(), |(_, flaw)| flaw);
            Problem::new(rejection.status(), format!("the request's body: {flaw}"))
        })?;
        Ok(Self {
            said,
            peer: peer.ip(),
        })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok());
    let essence = text.and_then(|text| text.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Words of a person: not blank, not endless, and nothing that PostgreSQL can't keep.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Words(pub(super) String);

impl TryFrom<String> for Words {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            Err("must not be blank: it is kept with the action".to_owned())
        } else if text.chars().count() > WORDS_MAX {
            Err(format!("is longer than {WORDS_MAX} characters"))
        } else if text.contains('\0') {
            Err("must not contain a NUL character".to_owned())
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

/// Who acts, and why. One who does not say is the address that it came from.
pub(super) fn by(actor: Option<Words>, reason: Words, peer: IpAddr) -> By {
    By {
        actor: actor.map_or_else(|| format!("api@{peer}"), |Words(actor)| actor),
        reason: reason.0,
    }
}
