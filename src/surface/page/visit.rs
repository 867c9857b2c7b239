//! Who comes, from where, and whether they may: what each handler of the page knows of a request.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Redirect, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    render,
    session::{self, Session},
};
use crate::surface::{
    Surface,
    access::{Denied, Right},
    problem::Problem,
};

/// Asks for a page that is on somebody's screen already.
const POLL: &str = "x-leafhopper-poll";

/// Keeps the name that somebody without a login has given.
const WHO: &str = "leafhopper_who";

/// Carries what an action came to over the redirect behind it.
const SAID: &str = "leafhopper_said";

/// What an action came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said {
    /// It was done.
    pub(super) done: bool,
    /// What is to be said of it.
    pub(super) text: String,
    /// What to do instead.
    pub(super) hint: Option<String>,
}

impl Said {
    /// The cookie that carries it.
    pub(super) fn carry(&self) -> HeaderValue {
        let value = BASE64.encode(serde_json::to_string(self).unwrap_or_default());
        cookie(SAID, &value, 60, false)
    }

    /// The cookie that ends it.
    pub(super) fn forget() -> HeaderValue {
        cookie(SAID, "", 0, false)
    }
}

/// A cookie that no script reads and that no other site's request carries.
fn cookie(name: &str, value: &str, seconds: i64, secure: bool) -> HeaderValue {
    let secure = if secure { "; Secure" } else { "" };
    let text =
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&text).expect("every value is visible ASCII without a semicolon")
}

/// Somebody who may read.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    /// What a login has opened.
    pub(super) session: Option<Session>,
    /// The name given before, where nobody logs in.
    pub(super) who: String,
    /// Where the connection comes from.
    pub(super) peer: IpAddr,
    /// Path and query.
    pub(super) here: String,
    /// The script asks for what is on the screen already.
    pub(super) is_poll: bool,
    /// The entity tag of what it has.
    pub(super) has: Option<HeaderValue>,
    /// What the action before this page came to.
    pub(super) said: Option<Said>,
    /// The browser came by https.
    pub(super) secure: bool,
}

impl Visit {
    /// Reads it, without a look at what it may.
    pub(super) fn read(parts: &Parts, surface: &Surface) -> Self {
        let headers = &parts.headers;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let key = surface.access.session_key();
        let value = named(headers, session::COOKIE);
        let session = key
            .zip(value)
            .and_then(|(key, value)| Session::read(&key, value, Timestamp::now()));
        let said = named(headers, SAID).and_then(|value| BASE64.decode(value).ok());
        let who = named(headers, WHO).and_then(|value| BASE64.decode(value).ok());
        let proto = headers.get("x-forwarded-proto");
        Self {
            session,
            who: who
                .and_then(|who| session::name(&String::from_utf8_lossy(&who)))
                .unwrap_or_default(),
            peer: peer.map_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), |peer| {
                peer.0.ip().to_canonical()
            }),
            here: parts
                .uri
                .path_and_query()
                .map_or("/", |here| here.as_str())
                .to_owned(),
            is_poll: headers.contains_key(POLL),
            has: headers.get(header::IF_NONE_MATCH).cloned(),
            said: said.and_then(|said| serde_json::from_slice(&said).ok()),
            secure: proto.is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https")),
        }
    }

    /// Who this is, for `operator_action.actor`.
    pub(super) fn actor(&self, given: Option<&str>) -> String {
        let session = self.session.as_ref().map(|session| session.name.as_str());
        match session.or(given) {
            Some(name) => format!("{name} via the page from {}", self.peer),
            None => format!("page from {}", self.peer),
        }
    }

    /// The cookie that keeps the given name.
    pub(super) fn keep_who(&self, who: &str) -> HeaderValue {
        cookie(WHO, &BASE64.encode(who), 365 * 86_400, self.secure)
    }

    /// The cookie that keeps a session, or ends it.
    pub(super) fn keep_session(&self, value: Option<&str>) -> HeaderValue {
        let seconds = if value.is_some() {
            session::HOURS * 3600
        } else {
            0
        };
        cookie(
            session::COOKIE,
            value.unwrap_or_default(),
            seconds,
            self.secure,
        )
    }
}

impl FromRequestParts<Surface> for Visit {
    type Rejection = Response;

    /// GET asks for the right to read, anything else for that to act.
    async fn from_request_parts(parts: &mut Parts, surface: &Surface) -> Result<Self, Response> {
        let visit = Self::read(parts, surface);
        let right = if parts.method == Method::GET || parts.method == Method::HEAD {
            Right::Read
        } else {
            Right::Act
        };
        let has_session = visit.session.is_some();
        match surface
            .access
            .check(right, &parts.headers, visit.peer, has_session)
        {
            Ok(()) => Ok(visit),
            Err(denied) => Err(refuse(right, denied, &visit, &parts.headers)),
        }
    }
}

/// What somebody gets who may not.
fn refuse(right: Right, denied: Denied, visit: &Visit, headers: &HeaderMap) -> Response {
    let shows_token = headers.contains_key(header::AUTHORIZATION);
    if denied != Denied::NoToken || shows_token {
        return problem(denied.into());
    }
    if visit.is_poll {
        return Problem::from(denied).into_response();
    }
    let login = format!("/login?to={}", percent(&visit.here));
    if right == Right::Act {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "nobody is logged in")
            .hint("log in, and do it again");
        return render::bare_page(StatusCode::UNAUTHORIZED, "problem.html", &problem);
    }
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site == "cross-site" || site == "same-site") {
        // A link on another site: the browser keeps the cookie back, and brings it where this page leads on by itself.
        return render::bare_page(StatusCode::OK, "enter.html", &login);
    }
    Redirect::to(&login).into_response()
}

/// A problem for somebody who may read nothing here.
pub(super) fn problem(problem: Problem) -> Response {
    let mut response = render::bare_page(problem.status(), "problem.html", &problem);
    if let Some((name, value)) = problem.header() {
        response.headers_mut().insert(name, value);
    }
    response
}

/// The value of a cookie (RFC 6265, section 5.4).
fn named<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers.get_all(header::COOKIE).into_iter();
    let mut pairs = pairs
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, v)| v)
}

/// As one part of a query.
pub(super) fn percent(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut to, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            // Writing to a String can't fail.
            let _ok = write!(to, "%{byte:02X}");
        }
        to
    })
}

/// A path of this page, whatever was asked for: nobody is sent to another site.
pub(super) fn local(path: &str) -> &str {
    let is_ours = path.starts_with('/')
        && !path.starts_with("//")
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && !["/login", "/logout"]
            .iter()
            .any(|own| path.starts_with(own));
    if is_ours { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        for path in [
            "",
            "http://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/a\n//evil.example",
            "/\tevil",
            "javascript:alert(1)",
            "calls",
            "/login?to=/login",
        ] {
            assert_eq!(local(path), "/", "{path:?}");
        }
        for path in ["/", "/calls/7?x=//y", "/batches?stuck=true#x"] {
            assert_eq!(local(path), path);
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; b=2=3"));
        headers.append(header::COOKIE, HeaderValue::from_static("c=4"));
        assert_eq!(named(&headers, "a"), Some("1"));
        assert_eq!(named(&headers, "b"), Some("2=3"));
        assert_eq!(named(&headers, "c"), Some("4"));
        assert_eq!(named(&headers, "d"), None);
    }
}
