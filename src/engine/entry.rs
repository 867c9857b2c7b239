//! What is to be recorded of an attempt, in the form in which the database can hold it.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;

use crate::{
    domain::{
        call::{CallId, Claimed},
        evidence::{Answer, Evidence, NotSent},
        outcome::{Class, Outcome},
        request::Request,
    },
    store::record::{Confirmation, History, Next, Unconfirmed},
};

/// Of a body that did not confirm, people see this much.
const EXCERPT_BYTES: usize = 2000;

/// What is to be recorded of one attempt.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Entry {
    Confirmed(Confirmation),
    Other(Unconfirmed),
}

impl Entry {
    /// A confirmation.
    pub(super) fn confirmed(
        call: &Claimed,
        request: &Request,
        answer: Answer,
        took: Duration,
    ) -> Self {
        let (body, body_raw) = stored_body(answer.body, answer.truncated);
        Self::Confirmed(Confirmation {
            call: call.id,
            leaf: call.leaf.clone(),
            key: call.key.clone(),
            attempt: call.attempt,
            generation: call.generation,
            status: answer.status,
            headers: stored_headers(answer.headers),
            body,
            body_raw,
            truncated: answer.truncated,
            request_hash: request.hash(),
            took,
        })
    }

    /// An attempt that did not confirm.
    pub(super) fn unconfirmed(
        call: &Claimed,
        (next, spends): (Next, bool),
        outcome: Outcome,
        evidence: Evidence,
        took: Duration,
    ) -> Self {
        let (status, error, excerpt) = match evidence {
            Evidence::NotSent(
                NotSent::Unsendable(error)
                | NotSent::Unconnected(error)
                | NotSent::OutOfTime(error)
                | NotSent::Refused(error),
            ) => (None, Some(error), None),
            Evidence::NotSent(NotSent::LeaseOver) => {
                (None, Some("the instance's lease was over".to_owned()), None)
            }
            Evidence::Unanswered(unanswered) => (unanswered.status, Some(unanswered.error), None),
            Evidence::Answered(answer) => {
                let excerpt = &answer.body[..answer.body.len().min(EXCERPT_BYTES)];
                let excerpt = String::from_utf8_lossy(excerpt).into_owned();
                (Some(answer.status), None, Some(excerpt))
            }
        };
        let history = History {
            class: outcome.class(),
            status,
            error: error.map(|text| stored_text(&text)),
            excerpt: excerpt.map(|text| stored_text(&text)),
            took,
        };
        other(call, next, spends, Some(history))
    }

    /// What follows for a call that was not sent.
    pub(super) fn not_sent(call: &Claimed, next: Next, flaw: Option<&str>) -> Self {
        let history = flaw.map(|flaw| History {
            class: Class::Failed,
            status: None,
            error: Some(stored_text(flaw)),
            excerpt: None,
            took: Duration::ZERO,
        });
        other(call, next, false, history)
    }

    /// The database refuses the content: first as bytes, then without the body. `false` where nothing is left of it:
    /// the rest is always storable, so something else refuses.
    pub(super) fn give_up_content(&mut self) -> bool {
        const UNSTORABLE: &str = "the leaf's answer can't be stored";
        match self {
            Self::Confirmed(confirmation) => {
                if let Some(text) = confirmation.body.take() {
                    confirmation.body_raw = Some(text.into_bytes());
                    return true;
                }
                let had_body = confirmation.body_raw.take().is_some();
                confirmation.truncated |= had_body;
                let headers = std::mem::replace(&mut confirmation.headers, "{}".to_owned());
                had_body || headers != "{}"
            }
            Self::Other(attempt) => attempt.history.as_mut().is_some_and(|history| {
                let excerpt = history.excerpt.take();
                let error = history.error.replace(UNSTORABLE.to_owned());
                excerpt.is_some() || error.is_none_or(|text| text != UNSTORABLE)
            }),
        }
    }

    /// The bytes of the body that it holds.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Confirmed(confirmation) => {
                confirmation.body.as_ref().map_or(0, |text| text.len())
                    + confirmation.body_raw.as_ref().map_or(0, Bytes::len)
            }
            Self::Other(_) => 0,
        }
    }

    pub(super) fn call(&self) -> CallId {
        match self {
            Self::Confirmed(confirmation) => confirmation.call,
            Self::Other(attempt) => attempt.call,
        }
    }
}

fn other(call: &Claimed, next: Next, spends: bool, history: Option<History>) -> Entry {
    Entry::Other(Unconfirmed {
        call: call.id,
        round: call.round,
        leaf: call.leaf.clone(),
        key: call.key.clone(),
        attempt: call.attempt,
        next,
        spends,
        history,
    })
}

/// Text as the database can hold it: it has no NUL.
pub(super) fn stored_text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Kept headers as a JSON object.
pub(super) fn stored_headers(headers: Vec<(String, String)>) -> String {
    let headers: serde_json::Map<String, serde_json::Value> = headers
        .into_iter()
        .map(|(name, value)| (name, stored_text(&value).into()))
        .collect();
    serde_json::Value::Object(headers).to_string()
}

/// As `jsonb` where that can hold it, else as bytes. No body is neither.
pub(super) fn stored_body(body: Bytes, truncated: bool) -> (Option<ByteString>, Option<Bytes>) {
    if body.is_empty() {
        return (None, None);
    }
    let text = ByteString::try_from(body.clone()).ok();
    // jsonb has no NUL (PostgreSQL, chapter 8.14); what else it refuses shows when it is recorded.
    let json = text.filter(|text| {
        !truncated
            && !text.contains("\\u0000")
            && serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
    });
    match json {
        Some(json) => (Some(json), None),
        None => (None, Some(body)),
    }
}
