//! One exchange, and what is certain about it.

use std::{
    error::Error as _,
    fmt::Write as _,
    future::{Future as _, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use reqwest::Response;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    LeafClient, body, headers,
    prepare::{Prepared, prepare},
    progress::{Progress, TrackedBody},
    redact::Secrets,
    setup,
};
use crate::{
    config::{Leaf, Proofs},
    domain::{
        evidence::{Answer, Evidence, NotSent, Unanswered},
        request::Request,
        trace::Trace,
    },
    step::reached,
    tls,
};

/// An error's text is for people and goes into a row.
const ERROR_BYTES_MAX: usize = 500;
/// No leaf is far enough to need longer for a connection, or near enough for one to need no time.
const TIMEOUT_SHORT: Duration = Duration::from_millis(500);
/// Longer than any request; a row's interval may be anything, and an instant is not.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How the wait for an answer's headers ended.
enum Ended {
    Response(Response),
    Failed(reqwest::Error),
    OutOfTime,
    LeaseOver,
}

/// Makes one attempt.
pub(crate) async fn attempt(
    client: &LeafClient,
    request: &Request,
    proofs: &Proofs,
    trace: Option<&Trace>,
    timeout: Duration,
    may_send: &(dyn Fn() -> bool + Send + Sync),
) -> Evidence {
    let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
    let (http, proxy_password) = client.http().await;
    let proxy = client.leaf.proxy_auth.as_ref().zip(proxy_password.as_ref());
    let secrets = Secrets::new(
        proofs,
        proxy.map(|(auth, password)| (&*auth.user, password)),
    );
    let prepared = match prepare(&client.leaf.base_url, request, proofs, trace) {
        Ok(prepared) => prepared,
        Err(NotSent::Unsendable(text)) => {
            let text = headers::cut(secrets.redact_text(text), ERROR_BYTES_MAX);
            return Evidence::NotSent(NotSent::Unsendable(text));
        }
        Err(other) => return Evidence::NotSent(other),
    };
    let (body, progress) = TrackedBody::new(request.body.clone().unwrap_or_default());
    let ended = exchange(&http, prepared, body, &progress, deadline, may_send).await;
    // From here on the request is dropped, as far as no connection has it.
    match ended {
        Ended::Response(response) => {
            reached("request", "answered");
            answer(client, response, deadline, &secrets).await
        }
        Ended::LeaseOver if progress.certainly_unwritten() => Evidence::NotSent(NotSent::LeaseOver),
        Ended::LeaseOver => unanswered(
            "the lease ended as the request was handed to a connection".to_owned(),
            None,
        ),
        Ended::OutOfTime if progress.certainly_unwritten() => {
            let text = format!("no connection within the {timeout:?} of the request");
            let usual = client.leaf.connect_timeout.min(client.leaf.timeout);
            Evidence::NotSent(if timeout < TIMEOUT_SHORT.min(usual / 2) {
                // A row's own limit, or what waiting has left: another call may well find the leaf.
                NotSent::OutOfTime(text)
            } else {
                NotSent::Unconnected(text)
            })
        }
        Ended::OutOfTime => unanswered(format!("no answer within {timeout:?}"), None),
        Ended::Failed(error) => failed(error, &progress, &secrets, &client.leaf),
    }
}

/// Sends the request and waits for the answer's headers.
///
/// The client hands a request to a connection that is up within one of its own polls. So `may_send`,
/// asked before each poll until then, is asked after the connection came up and directly before the request
/// goes to it; also where the client takes another connection than the first.
async fn exchange(
    http: &reqwest::Client,
    prepared: Prepared,
    body: TrackedBody,
    progress: &Arc<Progress>,
    deadline: Instant,
    may_send: &(dyn Fn() -> bool + Send + Sync),
) -> Ended {
    let mut request = reqwest::Request::new(prepared.method, prepared.url);
    *request.headers_mut() = prepared.headers;
    *request.body_mut() = Some(reqwest::Body::wrap(body));
    if !may_send() {
        return Ended::LeaseOver;
    }
    reached("request", "before");
    let mut response = pin!(http.execute(request));
    let mut out_of_time = pin!(sleep_until(deadline));
    poll_fn(|context| {
        if !progress.has_begun() && !may_send() {
            return Poll::Ready(Ended::LeaseOver);
        }
        match response.as_mut().poll(context) {
            Poll::Ready(Ok(response)) => return Poll::Ready(Ended::Response(response)),
            Poll::Ready(Err(error)) => return Poll::Ready(Ended::Failed(error)),
            Poll::Pending => {}
        }
        out_of_time
            .as_mut()
            .poll(context)
            .map(|()| Ended::OutOfTime)
    })
    .await
}

/// What an exchange without an answer proves.
fn failed(error: reqwest::Error, progress: &Progress, secrets: &Secrets, leaf: &Leaf) -> Evidence {
    let mut text = error_text(&error, secrets);
    if let Some(hint) = tls::error_in(&error).and_then(|error| setup::hint_of(error, leaf)) {
        text = headers::cut(format!("{text}; {hint}"), ERROR_BYTES_MAX);
    }
    if progress.certainly_unwritten() {
        return Evidence::NotSent(if error.is_builder() {
            NotSent::Unsendable(text)
        } else {
            NotSent::Unconnected(text)
        });
    }
    if refused_unprocessed(&error, progress) {
        return Evidence::NotSent(NotSent::Refused(text));
    }
    unanswered(text, None)
}

/// Whether the leaf said that it did not look at the request (RFC 9113 section 8.7).
///
/// `REFUSED_STREAM` names this very stream. GOAWAY names the last stream that was looked at, and h2 gives that
/// error to the streams above it. But it also gives it to whoever asks the connection for readiness just
/// after a stream was queued, and then this stream may be one of those below. hyper asks for the
/// body's bytes after that point, so only then GOAWAY is proof.
fn refused_unprocessed(error: &reqwest::Error, progress: &Progress) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            let gone = error.is_go_away() && progress.body_was_asked();
            return error.is_remote() && (refused || gone);
        }
        source = error.source();
    }
    false
}

/// Reads the body of an answer whose headers are here.
async fn answer(
    client: &LeafClient,
    response: Response,
    deadline: Instant,
    secrets: &Secrets,
) -> Evidence {
    let status = response.status().as_u16();
    let kept = headers::kept(response.headers(), &client.leaf.keep_headers, secrets);
    let retry_after = headers::retry_after(response.headers());
    let bytes_max = client.leaf.max_response_bytes;
    let body = body::read(response, bytes_max, &client.memory, deadline, secrets);
    match timeout_at(deadline, body).await {
        Ok(Ok(body)) => Evidence::Answered(Answer {
            status,
            headers: kept,
            retry_after,
            body: body.bytes,
            truncated: body.truncated,
        }),
        Ok(Err(error)) => unanswered(error_text(&error, secrets), Some(status)),
        Err(_) => unanswered(
            "the answer's body did not end in time".to_owned(),
            Some(status),
        ),
    }
}

fn unanswered(error: String, status: Option<u16>) -> Evidence {
    Evidence::Unanswered(Unanswered { error, status })
}

/// An error with its causes. Its URL is the row's path, known without it.
fn error_text(error: &reqwest::Error, secrets: &Secrets) -> String {
    let mut text = String::new();
    let mut last = String::new();
    let mut source = error.source();
    while let Some(error) = source {
        let own = error.to_string();
        // Wrapped errors often repeat the one inside.
        if own != last {
            let separator = if text.is_empty() { "" } else { ": " };
            let _infallible = write!(text, "{separator}{own}");
        }
        last = own;
        source = error.source();
    }
    if text.is_empty() {
        text = "the HTTP client gave up without a reason".to_owned();
    }
    headers::cut(secrets.redact_text(text), ERROR_BYTES_MAX)
}
