//! What a form sends, within the listener's limits.

use axum::{
    Form,
    body::Body,
    extract::{FromRequest as _, Request},
};
use serde::de::DeserializeOwned;

use crate::surface::{problem::Problem, server};

/// Reads a form of at most `bytes_max`.
///
/// # Errors
/// It is too long, too slow, or no such form.
pub(super) async fn read<T: DeserializeOwned>(
    request: Request,
    bytes_max: usize,
) -> Result<T, Problem> {
    let (parts, body) = request.into_parts();
    let bytes = server::body(body, bytes_max).await?;
    let request = Request::from_parts(parts, Body::from(bytes));
    let form = Form::<T>::from_request(request, &()).await;
    let Form(form) =
        form.map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))?;
    Ok(form)
}
