//! Makes the HTTP request of a row, or says why there is none to make.
//!
//! Rows are checked by the database, but a constraint can be dropped; what matters is checked here again.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE},
};
use reqwest::Url;
use secrecy::ExposeSecret as _;
use uuid::Uuid;

use crate::{
    config::{Auth, Proofs, Signer},
    domain::{
        evidence::NotSent,
        path,
        request::Request,
        signature::{Message, WEBHOOK_ID},
        trace::Trace,
    },
};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// What the client sets from the request itself, what belongs to one connection (RFC 9110 section 7.6.1), and
/// what is meant for a proxy.
const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request as it goes to the client, but for its body.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
}

/// Checks the row and puts it together with what is the leaf's.
pub(crate) fn prepare(
    base_url: &Url,
    request: &Request,
    proofs: &Proofs,
    trace: Option<&Trace>,
) -> Result<Prepared, NotSent> {
    // First, since a row's headers may name none of them.
    let mut own: Vec<_> = proofs
        .auth
        .as_ref()
        .map(auth_header)
        .transpose()?
        .into_iter()
        .collect();
    own.extend(idempotency_header(request).map_err(NotSent::Unsendable)?);
    if let Some(signer) = &proofs.signer {
        own.extend(signature_headers(signer, request)?);
    }
    let method = method(&request.method).map_err(NotSent::Unsendable)?;
    let url = url(base_url, &request.path).map_err(NotSent::Unsendable)?;
    let headers = headers(request, own, trace, &method).map_err(NotSent::Unsendable)?;
    Ok(Prepared {
        method,
        url,
        headers,
    })
}

fn method(name: &str) -> Result<Method, String> {
    match name {
        "GET" => Ok(Method::GET),
        "HEAD" => Ok(Method::HEAD),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        _ => Err(format!(
            "method {name:?} is not GET, HEAD, POST, PUT, PATCH or DELETE"
        )),
    }
}

/// Appends a row's path to the base, and makes sure on the result that it stayed below (guarantee G12).
pub(crate) fn url(base: &Url, path: &str) -> Result<Url, String> {
    path::check(path).map_err(|error| error.to_string())?;
    let base_path = base.path().trim_end_matches('/');
    let text = format!("{}{path}", base.as_str().trim_end_matches('/'));
    let url = Url::parse(&text).map_err(|error| format!("the path makes no URL: {error}"))?;
    let below = url
        .path()
        .strip_prefix(base_path)
        .is_some_and(|rest| rest.starts_with('/'));
    let same_place = url.origin() == base.origin()
        && url.scheme() == base.scheme()
        && url.username().is_empty()
        && url.password().is_none();
    if !below || !same_place {
        return Err("the path leads out of the leaf's base URL".to_owned());
    }
    // Whatever the parser would change: a path is sent as it is, or not at all.
    if url.as_str() != text || text.parse::<Uri>().is_err() {
        return Err(
            "the path is too long for a URL, or holds something that goes percent-encoded"
                .to_owned(),
        );
    }
    Ok(url)
}

/// The header by which a request authenticates. One that can't be written is the configuration's fault,
/// not the row's: the call must not fail for it.
fn auth_header(auth: &Auth) -> Result<(HeaderName, HeaderValue), NotSent> {
    let (name, value) = match auth {
        Auth::Bearer(token) => (
            Some(AUTHORIZATION),
            format!("Bearer {}", token.expose_secret()),
        ),
        Auth::Basic(pair) => (
            Some(AUTHORIZATION),
            format!("Basic {}", BASE64_STANDARD.encode(pair.expose_secret())),
        ),
        Auth::Header { name, value } => (
            HeaderName::from_bytes(name.as_bytes()).ok(),
            value.expose_secret().to_owned(),
        ),
    };
    let value = header_value(&value).map(|mut value| {
        // Keeps it out of the client's own logs and out of HTTP/2's compression table.
        value.set_sensitive(true);
        value
    });
    name.zip(value).ok_or_else(|| {
        NotSent::Unconnected(
            "the leaf's auth makes no HTTP header; its secret may hold a line break".to_owned(),
        )
    })
}

fn idempotency_header(request: &Request) -> Result<Option<(HeaderName, HeaderValue)>, String> {
    let name_and_value = request.idempotency.as_ref();
    name_and_value
        .map(|(name, value)| header(name, value))
        .transpose()
}

/// The headers that sign these bytes now. A secret that can't is the configuration's fault, as with auth.
fn signature_headers(
    signer: &Signer,
    request: &Request,
) -> Result<Vec<(HeaderName, HeaderValue)>, NotSent> {
    // A receiver that dedups by the signed id gets the idempotency key there.
    let keyed = request.idempotency.as_ref();
    let keyed = keyed
        .filter(|(name, _)| name == WEBHOOK_ID)
        .map(|(_, id)| id);
    // A probe must not look like the call that it asks about: the receiver would take that for a repetition.
    let probe = || format!("probe-{}", Uuid::now_v7());
    let id = keyed
        .or(request.message_id.as_ref())
        .cloned()
        .unwrap_or_else(probe);
    let message = Message {
        id: &id,
        // For the receiver, which refuses what is too old; nothing here compares it.
        at: jiff::Timestamp::now().as_second(),
        body: request.body.as_deref().unwrap_or_default(),
    };
    let signed = signer.signing.sign(signer.secret.expose_secret(), &message);
    let signed =
        signed.map_err(|flaw| NotSent::Unconnected(format!("the leaf's signing: {flaw}")))?;
    let signed = signed.iter().map(|(name, value)| {
        let (name, mut value) = header(name, value)?;
        value.set_sensitive(true);
        Ok((name, value))
    });
    signed
        .collect::<Result<_, String>>()
        .map_err(NotSent::Unsendable)
}

fn headers(
    request: &Request,
    own: Vec<(HeaderName, HeaderValue)>,
    trace: Option<&Trace>,
    method: &Method,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    // The signed id goes before the idempotency key under the same name: it is that key, as it can be signed.
    for (name, value) in own {
        headers.insert(name, value);
    }
    let own: Vec<HeaderName> = headers.keys().cloned().collect();
    for (name, value) in &request.headers {
        let (name, value) = header(name, value)?;
        if name == CONTENT_TYPE {
            return Err("header content-type: goes into the column content_type".to_owned());
        }
        if FRAMING.contains(&name.as_str()) {
            return Err(format!(
                "header {name}: is set by the sidecar; leave it out"
            ));
        }
        if own.contains(&name) {
            return Err(format!(
                "header {name}: is the leaf's own, set from its configuration; leave it out"
            ));
        }
        if headers.insert(name.clone(), value).is_some() {
            return Err(format!("header {name}: is there twice; names know no case"));
        }
    }
    if let Some(media_type) = &request.content_type {
        let value = header_value(media_type)
            .ok_or_else(|| "content_type: must be visible ASCII".to_owned())?;
        headers.insert(CONTENT_TYPE, value);
    }
    // A row that brings its own goes with its own: half of each would be a place that does not exist.
    if let Some(trace) = trace
        && !headers.contains_key(TRACEPARENT)
        && !headers.contains_key(TRACESTATE)
    {
        let place = [
            (TRACEPARENT, Some(trace.parent())),
            (TRACESTATE, trace.state()),
        ];
        for (name, value) in place {
            if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
                headers.insert(name, value);
            }
        }
    }
    let empty = request.body.as_ref().is_none_or(bytes::Bytes::is_empty);
    if empty && [Method::POST, Method::PUT, Method::PATCH].contains(method) {
        // RFC 9110 section 8.6: said also where it is 0; some servers answer 411 otherwise.
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    Ok(headers)
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .ok()
        .ok_or_else(|| format!("header {name:?}: is no name of a header"))?;
    let value = header_value(value)
        .ok_or_else(|| format!("header {parsed}: its value must be visible ASCII"))?;
    Ok((parsed, value))
}

/// Visible ASCII and spaces within (RFC 9110 section 5.5 without its obsolete parts).
fn header_value(value: &str) -> Option<HeaderValue> {
    let fits = value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value;
    fits.then(|| HeaderValue::from_str(value).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_appended_as_it_is() {
        for (base, path, joined) in [
            ("https://h", "/a", "https://h/a"),
            ("https://h/", "/a", "https://h/a"),
            ("https://h/api/v1", "/a?x=%2F", "https://h/api/v1/a?x=%2F"),
            ("https://h/api/v1/", "/a//b/", "https://h/api/v1/a//b/"),
            ("http://[::1]:81/x", "/", "http://[::1]:81/x/"),
            ("https://h:444/x", "/group%2fp", "https://h:444/x/group%2fp"),
        ] {
            let base = Url::parse(base).unwrap();
            assert_eq!(url(&base, path).unwrap().as_str(), joined);
        }
    }

    #[test]
    fn what_the_domain_lets_pass_is_what_the_parser_leaves_as_it_is() {
        let base = Url::parse("https://h/api").unwrap();
        for byte in 0..=0x7f_u8 {
            for part in ["/a", "/a?q="] {
                let path = format!("{part}{}b", char::from(byte));
                assert_eq!(
                    url(&base, &path).is_ok(),
                    path::check(&path).is_ok(),
                    "{path:?}"
                );
            }
        }
    }

    #[test]
    fn a_path_that_makes_no_url_is_refused() {
        let base = Url::parse("https://h/api").unwrap();
        let long = format!("/{}", "a".repeat(70_000));
        for path in ["/../x", "//h/x", "/%2e%2e/x", "x", "@h/x", &long] {
            assert!(url(&base, path).is_err(), "{path:.20}");
        }
    }
}
