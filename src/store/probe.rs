//! Calls that are asked about: what the probe must know of them, and what it found out.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use serde_json::{Value, json};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Row, Store, StoreError, column, int4, trace};
use crate::domain::{
    call::CallId, decision::CRASHES_UNTIL_SUSPECT, request::Request, trace::Trace,
};

const LOCK_WAIT: Duration = Duration::from_millis(100);

/// A call that is asked about.
#[derive(Debug, Clone)]
pub struct AskedCall {
    /// The call.
    pub call: CallId,
    /// Its effect key.
    pub key: String,
    /// Whose turn comes after it.
    pub ordering_key: Option<String>,
    /// The row's own probe, as it was inserted; or what is wrong with it.
    pub probe: Option<Result<Value, String>>,
    /// It undoes an effect: the leaf is asked whether that is still there.
    pub compensates: bool,
    /// The batch that it belongs to.
    pub batch: Option<Uuid>,
    /// What templates and expressions see of the call, or of the one that it undoes.
    pub seen: Value,
    /// Binds an adopted confirmation to the request.
    pub request_hash: [u8; 32],
    /// Which of the leaf's credentials.
    pub credential: Option<String>,
    /// Where it stands in its caller's trace.
    pub trace: Option<Trace>,
}

/// What a probe found out, as it is recorded.
#[derive(Debug, Clone)]
pub struct ProbeRecord {
    /// The call.
    pub call: CallId,
    /// Claims so far; the record holds only while this is unchanged.
    pub tries: i32,
    /// When its latest attempt can last have been alive; an absence counts only while this is unchanged.
    pub alive_until: Option<f64>,
    /// Its leaf.
    pub leaf: String,
    /// Its effect key.
    pub key: String,
    /// What follows.
    pub next: ProbeNext,
    /// Unclear answers to count.
    pub unclear: u32,
    /// After so many attempts it is not sent again.
    pub max_attempts: u32,
    /// The answer's status.
    pub status: Option<u16>,
    /// For the history: its class, what went wrong, the beginning of the body.
    pub history: Option<(&'static str, Option<String>, Option<String>)>,
    /// How long it took.
    pub took: Duration,
}

/// What became of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeRecorded {
    /// The state that it is in now.
    pub state: String,
    /// Why it is in that state; free text where a person cancelled it.
    pub reason: Option<String>,
    /// Its effect stood already, by another word than the probe's.
    pub stood: bool,
}

/// What follows for the call.
#[derive(Debug, Clone)]
pub enum ProbeNext {
    /// The effect is the call's.
    Adopt {
        /// The kept headers, as a JSON object.
        headers: String,
        /// The body where `jsonb` can hold it.
        body: Option<ByteString>,
        /// The body otherwise.
        body_raw: Option<Bytes>,
        /// Whether the body is not whole.
        truncated: bool,
        /// Nothing told it from somebody else's.
        weak: bool,
        /// What the confirmation answers.
        request_hash: [u8; 32],
    },
    /// It was not executed.
    NotExecuted,
    /// To be asked again after this delay.
    Again(Duration),
    /// A person has to say, for this reason.
    Park(&'static str),
    /// The leaf had refused it.
    Rejected,
}

impl Store {
    /// What a probe of this call must know; `None` where its row is gone.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn asked_call(&self, call: CallId) -> Result<Option<AskedCall>, StoreError> {
        const OPERATION: &str = "read a call to ask about";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/asked_call.sql"),
                &[(&call, Type::INT8)],
            )
            .await?;
        rows.first()
            .map(|row| asked_call(OPERATION, row))
            .transpose()
    }

    /// Records what a probe found out. `None` where something else decided it, or holds it.
    ///
    /// # Errors
    /// The database did not answer, or refuses the content.
    pub async fn record_probe(
        &self,
        instance: &str,
        record: &ProbeRecord,
    ) -> Result<Option<ProbeRecorded>, StoreError> {
        const OPERATION: &str = "record a probe";
        let (mut headers, mut body, mut raw) = (None, None, None);
        let (mut cut, mut weak) = (false, false);
        let (mut hash, mut delay, mut reason) = (None, 0.0, None);
        let kind = match &record.next {
            ProbeNext::Adopt {
                headers: kept,
                body: json,
                body_raw,
                truncated,
                weak: unsure,
                request_hash,
            } => {
                (headers, body, raw) = (Some(kept.as_str()), json.as_deref(), body_raw.as_deref());
                (cut, weak, hash) = (*truncated, *unsure, Some(request_hash.as_slice()));
                "adopt"
            }
            ProbeNext::NotExecuted => "not_executed",
            ProbeNext::Again(after) => {
                delay = after.as_secs_f64();
                "again"
            }
            ProbeNext::Park(why) => {
                reason = Some(*why);
                "park"
            }
            ProbeNext::Rejected => "rejected",
        };
        let history = record.history.as_ref();
        let class = history.map(|(class, ..)| *class);
        let error = history.and_then(|(_, error, _)| error.as_deref());
        let excerpt = history.and_then(|(.., excerpt)| excerpt.as_deref());
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/record_probe.sql"),
                &[
                    (&record.call, Type::INT8),
                    (&record.tries, Type::INT4),
                    (&record.leaf, Type::TEXT),
                    (&record.key, Type::TEXT),
                    (&kind, Type::TEXT),
                    (&delay, Type::FLOAT8),
                    (&reason, Type::TEXT),
                    (&int4(record.unclear), Type::INT4),
                    (&int4(record.max_attempts), Type::INT4),
                    (&record.status.map(i32::from), Type::INT4),
                    (&headers, Type::TEXT),
                    (&body, Type::TEXT),
                    (&raw, Type::BYTEA),
                    (&weak, Type::BOOL),
                    (&hash, Type::BYTEA),
                    (&class, Type::TEXT),
                    (&error, Type::TEXT),
                    (&excerpt, Type::TEXT),
                    (&record.took.as_secs_f64(), Type::FLOAT8),
                    (&instance, Type::TEXT),
                    (&record.alive_until, Type::FLOAT8),
                    (&cut, Type::BOOL),
                    (&int4(CRASHES_UNTIL_SUSPECT), Type::INT4),
                ],
            )
            .await?;
        rows.first()
            .map(|row| {
                Ok(ProbeRecorded {
                    state: column(OPERATION, row, "next")?,
                    reason: column(OPERATION, row, "why")?,
                    stood: column(OPERATION, row, "stood")?,
                })
            })
            .transpose()
    }
}

fn asked_call(operation: &'static str, row: &Row) -> Result<AskedCall, StoreError> {
    let (method, path): (String, String) = (
        column(operation, row, "method")?,
        column(operation, row, "path")?,
    );
    let probe: Option<&str> = column(operation, row, "probe")?;
    let body: Option<&str> = column(operation, row, "body")?;
    let body_raw: Option<&[u8]> = column(operation, row, "body_raw")?;
    let key: String = column(operation, row, "key")?;
    let call: CallId = column(operation, row, "id")?;
    let ordering_key: Option<String> = column(operation, row, "ordering_key")?;
    let seen: &str = column(operation, row, "seen")?;
    // What jsonb gives out is JSON; deeper than the parser goes, templates don't go either.
    let seen: Value = serde_json::from_str(seen).unwrap_or_else(
        |_too_deep| json!({ "id": call, "key": key, "method": method, "path": path }),
    );
    let request = Request {
        method,
        path,
        headers: Vec::new(),
        body: body
            .map(str::as_bytes)
            .or(body_raw)
            .map(|bytes| bytes.to_vec().into()),
        content_type: None,
        idempotency: None,
        message_id: None,
        credential: None,
    };
    Ok(AskedCall {
        call,
        key,
        ordering_key,
        probe: probe.map(|text| {
            serde_json::from_str(text).map_err(|error| format!("it can't be read: {error}"))
        }),
        compensates: column(operation, row, "compensates")?,
        batch: column(operation, row, "batch_id")?,
        seen,
        request_hash: request.hash(),
        credential: column(operation, row, "credential")?,
        trace: trace(operation, row)?,
    })
}
