//! What an address says: the parts of its path, and its parameters, of which each has to be one that the document names.

use axum::{
    extract::{FromRequestParts, Path},
    http::{StatusCode, Uri, request::Parts},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use utoipa::IntoParams;

use super::super::{Surface, problem::Problem};
use crate::suggest::closest;

/// As many as a page has where the request does not say.
pub(super) const USUAL: usize = 50;

/// As many as a page can have.
pub(super) const MOST: usize = 1000;

/// What the path names.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Surface> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, surface: &Surface) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, surface).await;
        let Path(name) =
            path.map_err(|rejection| Problem::new(StatusCode::BAD_REQUEST, rejection.body_text()))?;
        Ok(Self(name))
    }
}

/// The parameters, of two kinds that are read apart.
#[derive(Debug)]
pub(super) struct Query<A, B>(pub(super) A, pub(super) B);

impl<A, B> FromRequestParts<Surface> for Query<A, B>
where
    A: DeserializeOwned + IntoParams + Send,
    B: DeserializeOwned + IntoParams + Send,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Surface) -> Result<Self, Problem> {
        let pairs = pairs(&parts.uri);
        let (first, second) = (names::<A>(), names::<B>());
        let known: Vec<&str> = first.iter().chain(&second).map(String::as_str).collect();
        for (index, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let meant = closest(name, &known).map(|meant| format!("; did you mean {meant}?"));
                return Err(wrong(format!(
                    "there is no parameter {name}{} There are: {}",
                    meant.as_deref().unwrap_or("."),
                    known.join(", ")
                )));
            }
            if pairs[..index].iter().any(|(before, _)| before == name) {
                return Err(wrong(format!("the parameter {name} is given twice")));
            }
            if pairs[index].1.contains('\0') {
                return Err(wrong(format!("{name} contains a NUL character")));
            }
        }
        Ok(Self(read(&pairs, &first)?, read(&pairs, &second)?))
    }
}

/// Name and value of each.
pub(super) fn pairs(uri: &Uri) -> Vec<(String, String)> {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

fn names<T: IntoParams>() -> Vec<String> {
    let params = T::into_params(|| None);
    params.into_iter().map(|param| param.name).collect()
}

fn read<T: DeserializeOwned>(pairs: &[(String, String)], names: &[String]) -> Result<T, Problem> {
    let ours = pairs.iter().filter(|(name, _)| names.contains(name));
    let query = form_urlencoded::Serializer::new("/?".to_owned())
        .extend_pairs(ours)
        .finish();
    let uri: Uri = query
        .parse()
        .map_err(|flaw| wrong(format!("the parameters can't be read: {flaw}")))?;
    let query = axum::extract::Query::try_from_uri(&uri);
    let axum::extract::Query(value) = query.map_err(|rejection| {
        let text = rejection.body_text();
        let flaw = text
            .rsplit_once("query string: ")
            .map_or(text.as_str(), |(_, flaw)| flaw);
        wrong(flaw)
    })?;
    Ok(value)
}

fn wrong(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// How long a page is.
pub(super) fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let text = String::deserialize(from)?;
    let limit = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| D::Error::custom(format!("{text:?} is not a number from 1 to {MOST}")))
}

/// [`USUAL`]
pub(super) fn usual() -> usize {
    USUAL
}

/// The address of the next page, as the header `Link` has it (RFC 8288).
pub(super) fn next_link(uri: &Uri, after: &str) -> String {
    let kept = pairs(uri).into_iter().filter(|(name, _)| name != "after");
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(kept)
        .append_pair("after", after)
        .finish();
    format!("<{}?{query}>; rel=\"next\"", uri.path())
}
