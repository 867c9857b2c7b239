//! `/login` and `/logout`.

use axum::{
    extract::{FromRequestParts as _, Query, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    form, render,
    session::{self, Session},
    visit::{Visit, local, problem},
};
use crate::surface::{
    Surface,
    access::{Denied, Right},
};

/// What the login form sends is no longer than this: whoever sends it has shown nothing yet.
const LOGIN_BYTES_MAX: usize = 8 * 1024;

/// Where one wanted to go.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    to: String,
}

/// What the login form sends.
#[derive(Debug, Deserialize)]
pub(super) struct Login {
    token: String,
    name: String,
    #[serde(default)]
    to: String,
}

#[derive(Debug, Default, Serialize)]
struct LoginPage {
    to: String,
    name: String,
    wrong: Option<String>,
}

/// `GET /login`
pub(super) async fn ask(
    State(surface): State<Surface>,
    Query(wanted): Query<Wanted>,
    request: Request,
) -> Response {
    let (parts, _body) = request.into_parts();
    let visit = Visit::read(&parts, &surface);
    let to = local(&wanted.to);
    // Without a token there is nothing to log in with; whoever may read nothing learns why there.
    if visit.session.is_some() || !surface.access.needs_token() {
        return Redirect::to(to).into_response();
    }
    let page = LoginPage {
        to: to.to_owned(),
        ..LoginPage::default()
    };
    render::bare_page(StatusCode::OK, "login.html", &page)
}

/// `POST /login`
pub(super) async fn open(State(surface): State<Surface>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let visit = Visit::read(&parts, &surface);
    // A login that another site sends would have somebody act under another one's name.
    let access = &surface.access;
    if let Err(denied) = access.check(Right::Act, &parts.headers, visit.peer, true) {
        return problem(denied.into());
    }
    let form = form::read(Request::from_parts(parts, body), LOGIN_BYTES_MAX).await;
    let login: Login = match form {
        Ok(login) => login,
        Err(flaw) => return problem(flaw),
    };
    let to = local(&login.to);
    let again = |status, wrong: String| {
        let page = LoginPage {
            to: to.to_owned(),
            name: login.name.clone(),
            wrong: Some(wrong),
        };
        render::bare_page(status, "login.html", &page)
    };
    let Some(name) = session::name(&login.name) else {
        return again(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Say who you are: the name is kept with what you do.".to_owned(),
        );
    };
    match access.is_token(login.token.trim(), visit.peer) {
        Ok(()) => {}
        Err(Denied::TooManyTries { retry_after }) => {
            let seconds = retry_after.as_secs() + 1;
            let wrong = format!(
                "Too many wrong tokens came from this address: try again in {seconds} seconds."
            );
            let mut response = again(StatusCode::TOO_MANY_REQUESTS, wrong);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
            return response;
        }
        Err(Denied::WrongToken) => {
            let wrong = "That is not the token of listen.admin_token.".to_owned();
            return again(StatusCode::UNAUTHORIZED, wrong);
        }
        Err(denied) => return problem(denied.into()),
    }
    let Some(key) = access.session_key() else {
        return problem(Denied::NoneConfigured.into());
    };
    let value = Session { name }.open(&key, Timestamp::now());
    let cookie = [(header::SET_COOKIE, visit.keep_session(Some(&value)))];
    (cookie, Redirect::to(to)).into_response()
}

/// `POST /logout`
pub(super) async fn close(State(surface): State<Surface>, request: Request) -> Response {
    let (mut parts, _body) = request.into_parts();
    match Visit::from_request_parts(&mut parts, &surface).await {
        Ok(visit) => {
            let cookie = [(header::SET_COOKIE, visit.keep_session(None))];
            (cookie, Redirect::to("/login")).into_response()
        }
        Err(refused) => refused,
    }
}
