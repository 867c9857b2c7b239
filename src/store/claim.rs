//! Claim due calls, with their requests and what stands for them already; give claims back.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Param, Row, Store, StoreError, body::LARGE, column, count, int4, seconds, trace};
use crate::domain::{
    call::{CallId, Claimed, Prior, ROW_GONE, UndoneBy},
    request::{IdempotencyFormat, Request, idempotency_header, idempotency_value},
};

/// Claims skip what others lock; only the exclusion of keys can make one wait, for another's claim.
const LOCK_WAIT: Duration = Duration::from_millis(250);

/// Where a claim begins to look for a leaf's calls: by default at the head.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Start {
    /// For fresh calls, by priority: behind this one.
    pub fresh: BTreeMap<i16, CallId>,
    /// For what has become due: from when on, in seconds since 1970.
    pub due: f64,
}

impl Start {
    /// Begins behind what was reached.
    pub fn advance(&mut self, reached: &Self) {
        for (priority, call) in &reached.fresh {
            let mark = self.fresh.entry(*priority).or_default();
            *mark = (*mark).max(*call);
        }
        self.due = self.due.max(reached.due);
    }

    /// Where to begin instead, where the first calls that there are lie before this.
    pub fn before(&self, first: &Self) -> Option<Self> {
        let mut before = self.clone();
        for (priority, call) in &first.fresh {
            if let Some(mark) = before.fresh.get_mut(priority) {
                *mark = (*mark).min(call - 1);
            }
        }
        before.due = before.due.min(first.due);
        (before != *self).then_some(before)
    }

    /// Array literals of the spans to be looked at: behind a priority and a call id, below a priority. They leave out
    /// nothing but what lies before a mark.
    fn spans(&self) -> [String; 3] {
        let head = (i32::from(i16::MIN), 0);
        let marks = self.fresh.iter().map(|(p, call)| (i32::from(*p), *call));
        let starts: Vec<(i32, CallId)> = std::iter::once(head).chain(marks).collect();
        let ends = starts.iter().skip(1).map(|(priority, _)| *priority);
        let ends: Vec<i32> = ends.chain([i32::from(i16::MAX) + 1]).collect();
        let literal = |items: Vec<String>| format!("{{{}}}", items.join(","));
        [
            literal(starts.iter().map(|(p, _)| p.to_string()).collect()),
            literal(starts.iter().map(|(_, call)| call.to_string()).collect()),
            literal(ends.iter().map(ToString::to_string).collect()),
        ]
    }
}

/// What one leaf can take now.
#[derive(Debug, Clone, PartialEq)]
pub struct Want {
    /// The leaf.
    pub leaf: String,
    /// At most so many calls.
    pub slots: u32,
    /// The leaf's time limit for an attempt.
    pub timeout: Duration,
    /// From a call's first claim; then it fails.
    pub give_up_after: Duration,
    /// How long the leaf remembers an idempotency key, where it honours one.
    pub window: Option<Duration>,
    /// So many of the oldest calls go first, whatever their priority.
    pub aged: u32,
    /// The credentials that may be used now; an empty string is the leaf's own auth.
    pub credentials: Vec<String>,
    /// The name of the leaf's idempotency header, where it has one, and how its value is written.
    pub idempotency: Option<(String, IdempotencyFormat)>,
    /// To a key that it has refused, the leaf gives that answer again.
    pub replays_refusals: bool,
    /// Where to look.
    pub from: Start,
}

/// What a claim looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looking {
    /// Calls that were never tried, and that can be sent just like that.
    Fresh,
    /// All that is due, and what is in its way.
    Everything {
        /// For so long what can't be sent is put off.
        put_off: Duration,
        /// So many calls more of each leaf are looked at, where such as can't go are known to be in the way.
        spare: u32,
    },
}

/// What leaves want, as the statements take it.
struct Columns<'a> {
    leaves: Vec<&'a str>,
    slots: Vec<i32>,
    timeouts: Vec<f64>,
    give_ups: Vec<f64>,
    windows: Vec<Option<f64>>,
    aged: Vec<i32>,
    credentials: Vec<String>,
    spans: [Vec<String>; 3],
    due_from: Vec<f64>,
}

impl<'a> Columns<'a> {
    fn of(wants: &'a [Want]) -> Self {
        let seconds = |time: Duration| time.as_secs_f64();
        let spans: Vec<[String; 3]> = wants.iter().map(|want| want.from.spans()).collect();
        Self {
            leaves: wants.iter().map(|want| want.leaf.as_str()).collect(),
            slots: wants.iter().map(|want| int4(want.slots)).collect(),
            timeouts: wants.iter().map(|want| seconds(want.timeout)).collect(),
            give_ups: wants
                .iter()
                .map(|want| seconds(want.give_up_after))
                .collect(),
            windows: wants.iter().map(|want| want.window.map(seconds)).collect(),
            aged: wants.iter().map(|want| int4(want.aged)).collect(),
            credentials: wants
                .iter()
                .map(|want| serde_json::Value::from(want.credentials.clone()).to_string())
                .collect(),
            spans: [0, 1, 2].map(|at| spans.iter().map(|span| span[at].clone()).collect()),
            due_from: wants.iter().map(|want| want.from.due).collect(),
        }
    }

    /// Of `claim_fresh.sql`.
    fn for_fresh<'p>(&'p self, instance: &'p Uuid, round: &'p i64) -> [Param<'p>; 10] {
        let [behind_priorities, behind_calls, below] = &self.spans;
        [
            (instance, Type::UUID),
            (round, Type::INT8),
            (&self.leaves, Type::TEXT_ARRAY),
            (&self.slots, Type::INT4_ARRAY),
            (&self.timeouts, Type::FLOAT8_ARRAY),
            (&self.give_ups, Type::FLOAT8_ARRAY),
            (&self.credentials, Type::TEXT_ARRAY),
            (behind_priorities, Type::TEXT_ARRAY),
            (behind_calls, Type::TEXT_ARRAY),
            (below, Type::TEXT_ARRAY),
        ]
    }

    /// Of `claim.sql`.
    fn for_everything<'p>(
        &'p self,
        instance: &'p Uuid,
        round: &'p i64,
        put_off: &'p f64,
        spare: &'p i32,
    ) -> [Param<'p>; 15] {
        let [behind_priorities, behind_calls, below] = &self.spans;
        [
            (instance, Type::UUID),
            (round, Type::INT8),
            (&self.leaves, Type::TEXT_ARRAY),
            (&self.slots, Type::INT4_ARRAY),
            (&self.timeouts, Type::FLOAT8_ARRAY),
            (&self.give_ups, Type::FLOAT8_ARRAY),
            (&self.windows, Type::FLOAT8_ARRAY),
            (&self.aged, Type::INT4_ARRAY),
            (&self.credentials, Type::TEXT_ARRAY),
            (put_off, Type::FLOAT8),
            (spare, Type::INT4),
            (behind_priorities, Type::TEXT_ARRAY),
            (behind_calls, Type::TEXT_ARRAY),
            (below, Type::TEXT_ARRAY),
            (&self.due_from, Type::FLOAT8_ARRAY),
        ]
    }
}

/// What a round of claiming took.
#[derive(Debug, Default)]
pub struct Claims {
    /// Each is ours to send, once.
    pub claimed: Vec<Claimed>,
    /// Calls that were found due but can't be sent now, and were moved out of the way.
    pub put_off: u64,
    /// How far it came, by leaf.
    pub reached: BTreeMap<String, Start>,
    /// So many of a leaf's calls were taken as its oldest.
    pub aged: BTreeMap<String, u32>,
    /// Retries, or resends, that were due are left: others had their turn.
    pub due_left: bool,
    /// It was made leaf by leaf and call by call, and may have left some.
    pub cut: bool,
    /// How long it took to find and lock calls; of [`Looking::Fresh`] only where there were any.
    pub looked_for: Option<Duration>,
}

/// What was given back.
#[derive(Debug, Default, Clone, Copy)]
pub struct GivenBack {
    /// So many calls.
    pub calls: usize,
    /// Some of them were to be cancelled, and are.
    pub cancelled: bool,
}

impl Store {
    /// Claims for `instance` under `round`, for each leaf at most what it wants.
    ///
    /// # Errors
    /// Contention with another claim (see [`StoreError::is_contention`]): nothing was claimed, again.
    /// Otherwise nobody knows: claims of this round are to be given back.
    pub async fn claim(
        &self,
        instance: Uuid,
        round: i64,
        wants: &[Want],
        looking: Looking,
    ) -> Result<Claims, StoreError> {
        const OPERATION: &str = "claim calls";
        // Asked for nothing, it takes nothing: that is no step of a call's way.
        let operation = if wants.is_empty() {
            "see whether claiming works"
        } else {
            OPERATION
        };
        let columns = Columns::of(wants);
        let replaying = wants.iter().filter(|want| want.replays_refusals);
        let replaying: Vec<&str> = replaying.map(|want| want.leaf.as_str()).collect();
        let prior: (_, &[Param<'_>]) = (
            include_str!("../../sql/queries/prior.sql"),
            &[(&replaying, Type::TEXT_ARRAY), (&LARGE, Type::INT4)],
        );
        let (rows, requests) = match looking {
            Looking::Fresh => {
                let params = columns.for_fresh(&instance, &round);
                let claim = include_str!("../../sql/queries/claim_fresh.sql");
                self.write_both(operation, LOCK_WAIT, (claim, &params), prior)
                    .await?
            }
            Looking::Everything { put_off, spare } => {
                let (put_off, spare) = (put_off.as_secs_f64(), int4(spare));
                let params = columns.for_everything(&instance, &round, &put_off, &spare);
                let claim = include_str!("../../sql/queries/claim.sql");
                self.write_both(operation, LOCK_WAIT, (claim, &params), prior)
                    .await?
            }
        };
        let mut claims = Claims::default();
        for row in &rows {
            claims.put_off = column::<i64>(OPERATION, row, "put_off")?.unsigned_abs();
            claims.due_left = column(OPERATION, row, "due_left")?;
            claims.looked_for = column::<Option<f64>>(OPERATION, row, "looked_for")?.map(seconds);
            if let Some(id) = column::<Option<CallId>>(OPERATION, row, "call_id")? {
                let call = claimed(OPERATION, row, id, round)?;
                let reached = claims.reached.entry(call.leaf.clone()).or_default();
                let kind = column(OPERATION, row, "kind")?;
                reached.advance(&found_at(OPERATION, row, kind, id)?);
                if kind == AGED {
                    *claims.aged.entry(call.leaf.clone()).or_default() += 1;
                }
                claims.claimed.push(call);
            }
        }
        for row in &requests {
            let id: CallId = column(OPERATION, row, "id")?;
            if let Some(call) = claims.claimed.iter_mut().find(|call| call.id == id) {
                let want = wants.iter().find(|want| want.leaf == call.leaf);
                complete(call, row, want.and_then(|want| want.idempotency.as_ref()))?;
            }
        }
        Ok(claims)
    }

    /// Gives back this instance's claims of rounds up to `last_round` that it does not hold.
    ///
    /// # Errors
    /// The database did not answer; it is safe again at any time.
    pub async fn give_back(
        &self,
        instance: Uuid,
        last_round: i64,
        open_rounds: &[i64],
        held: &[CallId],
    ) -> Result<GivenBack, StoreError> {
        const OPERATION: &str = "give claims back";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/give_back.sql"),
                &[
                    (&instance, Type::UUID),
                    (&last_round, Type::INT8),
                    (&open_rounds, Type::INT8_ARRAY),
                    (&held, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let mut given = GivenBack::default();
        for row in &rows {
            given.calls += 1;
            given.cancelled |= column::<bool>(OPERATION, row, "over")?;
        }
        Ok(given)
    }
}

/// As what the statements have found a call.
const AGED: i32 = 0;
const FRESH: i32 = 1;
const DUE: i32 = 2;

/// Where in its index the claim has found a call.
fn found_at(
    operation: &'static str,
    row: &Row,
    kind: i32,
    id: CallId,
) -> Result<Start, StoreError> {
    let mut start = Start::default();
    match kind {
        AGED | FRESH => {
            start.fresh.insert(column(operation, row, "priority")?, id);
        }
        DUE => start.due = column(operation, row, "due")?,
        _ => {}
    }
    Ok(start)
}

/// What the claim itself says of a call; [`complete`] adds what the outbox and the result table say.
fn claimed(
    operation: &'static str,
    row: &Row,
    id: CallId,
    round: i64,
) -> Result<Claimed, StoreError> {
    Ok(Claimed {
        id,
        round,
        leaf: column(operation, row, "leaf")?,
        key: column(operation, row, "key")?,
        ordering_key: column(operation, row, "ordering_key")?,
        attempt: count(column(operation, row, "tries")?),
        spent: count(column(operation, row, "attempts")?),
        in_doubt: column(operation, row, "in_doubt")?,
        waited: seconds(column(operation, row, "waited")?),
        request: Err(ROW_GONE.to_owned()),
        body_is_apart: false,
        max_attempts: None,
        timeout: None,
        has_probe: false,
        compensates: false,
        batch: None,
        trace: None,
        prior: None,
        generation: 1,
        since_alive: None,
    })
}

fn complete(
    call: &mut Claimed,
    row: &Row,
    dialect: Option<&(String, IdempotencyFormat)>,
) -> Result<(), StoreError> {
    const OPERATION: &str = "read a claimed call";
    call.key = column(OPERATION, row, "key")?;
    call.max_attempts = column::<Option<i32>>(OPERATION, row, "max_attempts")?.map(count);
    call.timeout = column::<Option<f64>>(OPERATION, row, "timeout")?.map(seconds);
    call.has_probe = column(OPERATION, row, "has_probe")?;
    call.compensates = column(OPERATION, row, "compensates")?;
    call.body_is_apart = column::<Option<bool>>(OPERATION, row, "body_is_apart")?.unwrap_or(false);
    call.batch = column(OPERATION, row, "batch_id")?;
    call.trace = trace(OPERATION, row)?;
    call.since_alive = column(OPERATION, row, "since_alive")?;
    if let Some(generation) = column::<Option<i32>>(OPERATION, row, "generation")?.map(count) {
        if column(OPERATION, row, "undone")? {
            call.generation = generation + 1;
        } else {
            call.generation = generation;
            call.prior = Some(Prior {
                generation,
                request_hash: column(OPERATION, row, "request_hash")?,
                being_undone: match column(OPERATION, row, "being_undone_by")? {
                    Some("row") => Some(UndoneBy::Row),
                    Some(_) => Some(UndoneBy::Leaf),
                    None => None,
                },
            });
        }
    }
    let refusals = column::<i64>(OPERATION, row, "refusals")?;
    let refusals = u32::try_from(refusals).unwrap_or(u32::MAX);
    let idempotency = dialect.map(|(name, format)| {
        let value = idempotency_value(&call.leaf, &call.key, call.generation, refusals);
        (name.clone(), idempotency_header(*format, &value))
    });
    let message_id = idempotency_value(&call.leaf, &call.key, call.generation, 0);
    call.request = request(row, idempotency, message_id).map_err(|flaw| flaw.to_string());
    Ok(())
}

/// The row as a request. What can't be one is this row's own trouble and nobody else's.
fn request(
    row: &Row,
    idempotency: Option<(String, String)>,
    message_id: String,
) -> Result<Request, StoreError> {
    const OPERATION: &str = "read the request";
    let headers: &str = column(OPERATION, row, "headers")?;
    let headers: BTreeMap<String, String> = serde_json::from_str(headers)
        .map_err(|error| StoreError::other(OPERATION, format!("headers: {error}")))?;
    let body: Option<&str> = column(OPERATION, row, "body")?;
    let body_raw: Option<&[u8]> = column(OPERATION, row, "body_raw")?;
    Ok(Request {
        method: column(OPERATION, row, "method")?,
        path: column(OPERATION, row, "path")?,
        headers: headers.into_iter().collect(),
        body: body
            .map(str::as_bytes)
            .or(body_raw)
            .map(Bytes::copy_from_slice),
        content_type: column(OPERATION, row, "content_type")?,
        idempotency,
        message_id: Some(message_id),
        credential: column(OPERATION, row, "credential")?,
    })
}
