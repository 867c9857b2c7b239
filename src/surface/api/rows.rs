//! The shapes of rows, for the document. PostgreSQL writes them and they pass unread, so no value of these types is ever
//! made; a test holds what is answered against them.

#![expect(
    dead_code,
    reason = "they describe JSON that is not made of Rust's values"
)]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::filter::{BatchState, State};

/// A page of calls.
#[derive(ToSchema)]
pub(super) struct CallList {
    calls: Vec<Call>,
    /// The `after` of the next page; null where there is none.
    next: Option<i64>,
}

/// A page of batches.
#[derive(ToSchema)]
pub(super) struct BatchList {
    batches: Vec<Batch>,
    /// The `after` of the next page; null where there is none.
    next: Option<Uuid>,
}

/// A page of jobs.
#[derive(ToSchema)]
pub(super) struct JobList {
    jobs: Vec<Job>,
    /// The `after` of the next page; null where there is none.
    next: Option<i64>,
}

/// A call as lists show it: columns of `leafhopper.call`. Times are as PostgreSQL writes them, `infinity` too.
#[derive(ToSchema)]
pub(super) struct Call {
    id: i64,
    leaf: String,
    /// The effect key.
    key: String,
    method: String,
    path: String,
    batch_id: Option<Uuid>,
    run_when: String,
    ordering_key: Option<String>,
    priority: i32,
    not_before: Option<String>,
    deadline: Option<String>,
    credential: Option<String>,
    /// The app's own tags.
    meta: BTreeMap<String, Value>,
    created_at: String,
    /// Of a compensation: the call whose effect it undoes.
    undoes: Option<i64>,
    state: State,
    /// Why it is in that state.
    reason: Option<String>,
    /// The call that it waits for.
    waits_for: Option<i64>,
    attempts: i32,
    next_attempt_at: Option<String>,
    in_doubt_since: Option<String>,
    last_status: Option<i32>,
    last_error: Option<String>,
    claimed_by: Option<String>,
    finished_at: Option<String>,
    undone_at: Option<String>,
    /// It does not move by itself, or has not moved for longer than `stuck_after`.
    stuck: bool,
}

/// A call with everything that is known of it: the columns of `leafhopper.call`, and rows of tables under their names.
#[derive(ToSchema)]
pub(super) struct CallDetails {
    #[serde(flatten)]
    call: Call,
    headers: Option<Value>,
    body: Value,
    body_raw: Option<String>,
    content_type: Option<String>,
    max_attempts: Option<i32>,
    timeout: Option<String>,
    probe: Value,
    compensate: Value,
    /// Attempts that did not confirm, and second confirmations; the oldest first, the latest 500.
    attempt: Vec<Attempt>,
    /// The confirmation that answers it.
    result: Option<Confirmation>,
    /// Its batch, with the calls of it that ended without a confirmation, the first ones.
    batch: Option<Batch>,
    /// What people did to it; the oldest first, the latest 500.
    operator_action: Vec<Action>,
    /// The call that it waits for.
    waits_for_call: Option<Call>,
    /// Other calls for the same effect, the newest first.
    same_key: Vec<Call>,
    /// Calls of its ordering key wait, since it ended without a confirmation.
    holds_others: bool,
    /// Why it is where it is, in words.
    explanation: String,
    /// The commands that would move it.
    commands: Vec<String>,
    /// `listen.show_bodies` is false: bodies, headers and excerpts are null here, whatever they are.
    #[schema(required = false)]
    bodies_hidden: bool,
}

/// An attempt that did not confirm, or that confirmed again.
#[derive(ToSchema)]
pub(super) struct Attempt {
    id: i64,
    call_id: i64,
    attempt: i32,
    started_at: Option<String>,
    finished_at: String,
    class: String,
    status: Option<i32>,
    error: Option<String>,
    /// What the leaf answered, the beginning of it.
    body: Option<String>,
    instance: Option<String>,
}

/// What a leaf confirmed: a row of `leafhopper.result`.
#[derive(ToSchema)]
pub(super) struct Confirmation {
    leaf: String,
    key: String,
    generation: i32,
    seq: i64,
    call_id: Option<i64>,
    batch_id: Option<Uuid>,
    attempt: Option<i32>,
    attempts: i32,
    status: i32,
    headers: Option<Value>,
    body: Value,
    body_raw: Option<String>,
    truncated: bool,
    source: String,
    weak: bool,
    request_hash: Option<String>,
    confirmed_at: String,
    undone_at: Option<String>,
    alive_until: Option<String>,
}

/// Something that a person did: a row of `leafhopper.operator_action`.
#[derive(ToSchema)]
pub(super) struct Action {
    id: i64,
    at: String,
    actor: String,
    action: String,
    call_id: Option<i64>,
    batch_id: Option<Uuid>,
    leaf: Option<String>,
    reason: String,
    /// `job`: the job that did it for them.
    detail: BTreeMap<String, Value>,
}

/// A batch as lists show it.
#[derive(ToSchema)]
pub(super) struct Batch {
    id: Uuid,
    name: Option<String>,
    state: BatchState,
    /// What it waits for, where that is somebody.
    reason: Option<String>,
    stuck: bool,
    /// How many of its calls are in which state.
    calls: BTreeMap<String, i64>,
    /// How many effects of its calls stand.
    standing: i64,
    allow_failures: bool,
    sealed: bool,
    undo_order: String,
    created_at: Option<String>,
    changed_at: Option<String>,
    idle_since: Option<String>,
    last_phase_at: Option<String>,
    finished_at: Option<String>,
    /// Of a call's batch: its calls that ended without a confirmation, the first ones.
    #[schema(required = false)]
    ended: Vec<Value>,
}

/// A batch with everything that is known of it. Of each kind of calls, the first 50.
#[derive(ToSchema)]
pub(super) struct BatchDetails {
    #[serde(flatten)]
    batch: Batch,
    /// How many of its calls of each kind are in which state.
    calls_by_kind: BTreeMap<String, BTreeMap<String, i64>>,
    /// How many effects were undone.
    undone: i64,
    /// The calls that are sent from the start.
    ready: Vec<Call>,
    /// The calls that undo.
    compensation: Vec<Call>,
    /// The calls that wait for its end.
    follow_up: Vec<Call>,
    /// The calls that have to end before it goes on, each with the commands that would move it.
    waits_for: Vec<Value>,
    /// The effects that stand, each with why, and the commands that would move it.
    effect: Vec<Value>,
    /// How many of each are not shown.
    left_out: BTreeMap<String, i64>,
    /// What people did to it.
    operator_action: Vec<Action>,
    /// Why it is where it is, in words.
    explanation: String,
    /// The commands that would move it.
    commands: Vec<String>,
}

/// A running sidecar, or one that was not heard of for longer than its lease.
#[derive(ToSchema)]
pub(super) struct Instance {
    id: Uuid,
    /// Host and process.
    name: String,
    started_at: String,
    heartbeat_at: String,
    /// Its lease runs.
    alive: bool,
    /// The leaves that it knows.
    leaves: Vec<String>,
}

/// An action on all calls that match a filter, and how far it is.
#[derive(ToSchema)]
pub(super) struct Job {
    id: i64,
    action: JobAction,
    /// Which calls.
    filter: BTreeMap<String, Value>,
    /// What else was said: `status` and `body`, or `send`.
    detail: BTreeMap<String, Value>,
    actor: String,
    reason: String,
    /// Over how long what is sent again is spread.
    spread: Option<String>,
    /// While it runs, any instance works on it; where none does, it waits for one.
    state: JobState,
    /// Calls up to this id are meant.
    last_id: i64,
    /// Calls up to this id were seen to.
    after_id: i64,
    /// How many matched when it began; null where counting them would have taken long.
    matched: Option<i64>,
    /// How many calls it has changed.
    done: i64,
    /// How many it could not.
    refused: i64,
    /// The first of these, each with its id, why not, and what to do instead.
    refusals: Vec<Value>,
    /// Of a failed one, why.
    error: Option<String>,
    created_at: String,
    /// When it last came further.
    changed_at: String,
    finished_at: Option<String>,
}

/// What a job does.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum JobAction {
    Retry,
    Cancel,
    Release,
    ResolveConfirmed,
    ResolveNotExecuted,
    Waive,
}

/// Where a job is.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum JobState {
    Running,
    Done,
    Failed,
    Cancelled,
}
