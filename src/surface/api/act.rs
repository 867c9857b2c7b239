//! Changes of single calls.

use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    super::{Surface, problem::Problem},
    query::Named,
    told::{Told, Words, by},
};
use crate::{
    domain::call::CallId,
    store::operator::act::{Change, Target},
};

/// What stands for the leaf's status where nothing is said.
const STATUS: u16 = 200;

/// Who changes a call, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ActOnCall {
    /// Why; it is kept with the action.
    #[schema(value_type = String, min_length = 1, max_length = 1000)]
    reason: Words,
    /// Who acts; without one, `api@` and the address that the request came from.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1000)]
    actor: Option<Words>,
    /// Refuse if the call has another number of attempts by now.
    expect_attempts: Option<u32>,
}

/// Who acts, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Act {
    /// Why; it is kept with the action.
    #[schema(value_type = String, min_length = 1, max_length = 1000)]
    pub(super) reason: Words,
    /// Who acts; without one, `api@` and the address that the request came from.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1000)]
    pub(super) actor: Option<Words>,
}

/// What is true of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Truth {
    /// The effect exists.
    Confirmed,
    /// The leaf has executed nothing.
    NotExecuted,
    /// Of a compensation that failed or is parked: the effect stands that it could not undo.
    Waive,
}

/// What is true of a call that nobody knows about, who says so, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveCall {
    /// What is true.
    #[serde(rename = "as")]
    truth: Truth,
    /// Of `confirmed`: the status to keep as the leaf's; 200 unless it is said.
    #[schema(minimum = 100, maximum = 999)]
    status: Option<u16>,
    /// Of `confirmed`: the body to keep as the leaf's, any JSON. Compensations may be made of it.
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<Box<RawValue>>,
    /// Of `not_executed`: whether it is sent again (else it ends as cancelled); true unless it is said.
    send: Option<bool>,
    /// Why; it is kept with the action.
    #[schema(value_type = String, min_length = 1, max_length = 1000)]
    reason: Words,
    /// Who says so; without one, `api@` and the address that the request came from.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1000)]
    actor: Option<Words>,
    /// Refuse if the call has another number of attempts by now.
    expect_attempts: Option<u32>,
}

/// The change that somebody's word is.
///
/// # Errors
/// It says something that does not belong to it.
pub(super) fn change(
    truth: Truth,
    status: Option<u16>,
    body: Option<&RawValue>,
    send: Option<bool>,
) -> Result<Change<'_>, Problem> {
    let wrong = |detail: &str| Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    if truth != Truth::Confirmed && (status.is_some() || body.is_some()) {
        return wrong("status and body go with \"as\": \"confirmed\" only");
    }
    if truth != Truth::NotExecuted && send.is_some() {
        return wrong("send goes with \"as\": \"not_executed\" only");
    }
    Ok(match truth {
        Truth::Confirmed => {
            let status = status.unwrap_or(STATUS);
            if !(100..1000).contains(&status) {
                return wrong("status is an HTTP status, from 100 to 999");
            }
            Change::Confirm {
                status,
                body: body.map(RawValue::get),
            }
        }
        Truth::NotExecuted if send == Some(false) => Change::NotExecutedEnd,
        Truth::NotExecuted => Change::NotExecutedSend,
        Truth::Waive => Change::Waive,
    })
}

/// What became of a call.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChangedCall {
    /// The call.
    #[schema(value_type = i64)]
    id: CallId,
    /// The state that it is in now.
    state: String,
}

/// What became of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChangedBatch {
    /// The batch.
    pub(super) id: Uuid,
    /// The state that it is in now.
    pub(super) state: String,
}

/// What a head was released for.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReleasedCall {
    /// The head.
    #[schema(value_type = i64)]
    id: CallId,
    /// The leaf.
    leaf: String,
    /// The ordering key.
    ordering_key: String,
    /// The call that goes next.
    #[schema(value_type = Option<i64>)]
    next: Option<CallId>,
}

async fn act(
    surface: &Surface,
    id: CallId,
    change: Change<'_>,
    told: Told<ActOnCall>,
) -> Result<Json<ChangedCall>, Problem> {
    let by = by(told.said.actor, told.said.reason, told.peer);
    let target = Target {
        id,
        attempts: told.said.expect_attempts,
    };
    let state = surface.stores.people.act_on(&by, change, target).await?;
    Ok(Json(ChangedCall { id, state }))
}

/// Send a failed call again.
#[utoipa::path(post, path = "/api/v1/calls/{id}/retry", operation_id = "retry_call", tag = "calls",
    params(("id" = i64, Path, description = "The call.")), request_body = ActOnCall,
    responses((status = 200, description = "It is sent again.", body = ChangedCall)))]
pub(super) async fn retry(
    State(surface): State<Surface>,
    Named(id): Named<CallId>,
    told: Told<ActOnCall>,
) -> Result<Json<ChangedCall>, Problem> {
    act(&surface, id, Change::Retry, told).await
}

/// Keep a call from being sent.
///
/// One that is in flight or in doubt is marked: it is not sent again, and ends as confirmed or cancelled when that is known.
#[utoipa::path(post, path = "/api/v1/calls/{id}/cancel", operation_id = "cancel_call", tag = "calls",
    params(("id" = i64, Path, description = "The call.")), request_body = ActOnCall,
    responses((status = 200, description = "It is cancelled, or marked.", body = ChangedCall)))]
pub(super) async fn cancel(
    State(surface): State<Surface>,
    Named(id): Named<CallId>,
    told: Told<ActOnCall>,
) -> Result<Json<ChangedCall>, Problem> {
    act(&surface, id, Change::Cancel, told).await
}

/// Say what is true of a call that nobody knows about, or let an effect stand.
#[utoipa::path(post, path = "/api/v1/calls/{id}/resolve", operation_id = "resolve_call", tag = "calls",
    params(("id" = i64, Path, description = "The call.")), request_body = ResolveCall,
    responses((status = 200, description = "That is on record.", body = ChangedCall)))]
pub(super) async fn resolve(
    State(surface): State<Surface>,
    Named(id): Named<CallId>,
    told: Told<ResolveCall>,
) -> Result<Json<ChangedCall>, Problem> {
    let Told { said, peer } = told;
    let change = change(said.truth, said.status, said.body.as_deref(), said.send)?;
    let act_on = Told {
        said: ActOnCall {
            reason: said.reason,
            actor: said.actor,
            expect_attempts: said.expect_attempts,
        },
        peer,
    };
    act(&surface, id, change, act_on).await
}

/// Let the next call behind a failed head of an ordering key go, once.
#[utoipa::path(post, path = "/api/v1/calls/{id}/release", operation_id = "release_call", tag = "calls",
    params(("id" = i64, Path, description = "The head.")), request_body = ActOnCall,
    responses((status = 200, description = "The next one goes.", body = ReleasedCall)))]
pub(super) async fn release(
    State(surface): State<Surface>,
    Named(id): Named<CallId>,
    told: Told<ActOnCall>,
) -> Result<Json<ReleasedCall>, Problem> {
    let by = by(told.said.actor, told.said.reason, told.peer);
    let head = Target {
        id,
        attempts: told.said.expect_attempts,
    };
    let released = surface.stores.people.release(&by, head).await?;
    Ok(Json(ReleasedCall {
        id,
        leaf: released.leaf,
        ordering_key: released.ordering_key,
        next: released.next,
    }))
}
