//! Leaves, instances, and all sending after the database changed.

use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    super::{Surface, problem::Problem},
    act::Act,
    query::Named,
    rows,
    told::{Told, Words, by},
};
use crate::{
    present::leaves::{Leaf, leaves},
    store::operator::leaves::Treatment,
};

/// The leaves.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LeafList {
    /// By name.
    leaves: Vec<Leaf>,
}

/// The instances.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InstanceList {
    /// Those whose lease runs first.
    #[schema(value_type = Vec<rows::Instance>)]
    instances: Vec<Box<RawValue>>,
}

/// A leaf that was paused or resumed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChangedLeaf {
    /// Its name.
    name: String,
    /// Whether it is paused now.
    paused: bool,
    /// Of one that was paused: whether an instance has ever known it; if not, look whether that is its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<bool>,
}

/// How calls are treated that were claimed or pending before the database changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum As {
    /// They may have been executed: each is in doubt, and looked into.
    Probe,
    /// They were not executed: each is sent.
    Resend,
}

/// How all sending goes on, who says so, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeAll {
    /// After the database changed, and only then: how calls are treated that were claimed or pending before.
    #[serde(rename = "as")]
    #[schema(inline)]
    treated: Option<As>,
    /// Why; it is kept with the action.
    #[schema(value_type = String, min_length = 1, max_length = 1000)]
    reason: Words,
    /// Who acts; without one, `api@` and the address that the request came from.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1000)]
    actor: Option<Words>,
}

/// What goes on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Resumed {
    /// After the database changed: so many calls were moved. Else null.
    moved: Option<u64>,
    /// The leaves that were resumed. None after the database changed: what a person paused stays paused.
    resumed: Vec<String>,
    /// The leaves that are still paused.
    still_paused: Vec<String>,
}

/// List leaves, with what they are sent and what keeps them from it.
///
/// The numbers are those of a moment ago. A leaf that is named by calls alone is listed, too.
#[utoipa::path(get, path = "/api/v1/leaves", operation_id = "list_leaves", tag = "leaves",
    responses((status = 200, description = "The leaves.", body = LeafList)))]
pub(super) async fn list(State(surface): State<Surface>) -> Result<Json<LeafList>, Problem> {
    let rows = surface.stores.people.leaves().await?;
    let tables = surface.tables().await?;
    let mut leaves = leaves(rows, &tables.counts);
    for leaf in &mut leaves {
        if let Some(lane) = surface.context.lanes.get(&leaf.name) {
            let configured = &lane.settings().leaf;
            leaf.concurrency = Some(configured.concurrency);
            leaf.rate = configured.rate;
        }
    }
    Ok(Json(LeafList { leaves }))
}

/// List the running sidecars, and those that were not heard of for longer than their lease.
#[utoipa::path(get, path = "/api/v1/instances", operation_id = "list_instances", tag = "instances",
    responses((status = 200, description = "The instances.", body = InstanceList)))]
pub(super) async fn instances(
    State(surface): State<Surface>,
) -> Result<Json<InstanceList>, Problem> {
    let rows = surface.stores.people.instance_rows().await?;
    let instances = rows
        .into_iter()
        .map(RawValue::from_string)
        .collect::<Result<_, _>>()?;
    Ok(Json(InstanceList { instances }))
}

/// Stop sending to a leaf. What is under way comes to its end.
#[utoipa::path(post, path = "/api/v1/leaves/{name}/pause", operation_id = "pause_leaf", tag = "leaves",
    params(("name" = String, Path, description = "The leaf.")), request_body = Act,
    responses((status = 200, description = "It is paused.", body = ChangedLeaf)))]
pub(super) async fn pause(
    State(surface): State<Surface>,
    Named(name): Named<String>,
    told: Told<Act>,
) -> Result<Json<ChangedLeaf>, Problem> {
    let name = leaf(name)?;
    let by = by(told.said.actor, told.said.reason, told.peer);
    let known = surface.stores.people.pause(&by, &name).await?;
    Ok(Json(ChangedLeaf {
        name,
        paused: true,
        known: Some(known),
    }))
}

/// Send to a leaf again; its breaker is closed.
#[utoipa::path(post, path = "/api/v1/leaves/{name}/resume", operation_id = "resume_leaf", tag = "leaves",
    params(("name" = String, Path, description = "The leaf.")), request_body = Act,
    responses((status = 200, description = "It is resumed.", body = ChangedLeaf)))]
pub(super) async fn resume(
    State(surface): State<Surface>,
    Named(name): Named<String>,
    told: Told<Act>,
) -> Result<Json<ChangedLeaf>, Problem> {
    let name = leaf(name)?;
    let by = by(told.said.actor, told.said.reason, told.peer);
    surface.stores.people.resume(&by, Some(&name)).await?;
    Ok(Json(ChangedLeaf {
        name,
        paused: false,
        known: None,
    }))
}

/// Send to all leaves again; or go on after the database changed.
#[utoipa::path(post, path = "/api/v1/resume", operation_id = "resume_all", tag = "leaves", request_body = ResumeAll,
    responses((status = 200, description = "It goes on.", body = Resumed)))]
pub(super) async fn resume_all(
    State(surface): State<Surface>,
    told: Told<ResumeAll>,
) -> Result<Json<Resumed>, Problem> {
    let store = &surface.stores.people;
    let treated = told.said.treated;
    let by = by(told.said.actor, told.said.reason, told.peer);
    let origin = store.origin().await?;
    let change = origin.changed();
    let (moved, resumed) = match (change, treated) {
        (None, None) => (None, store.resume(&by, None).await?),
        (None, Some(_)) => {
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "the database has not changed, so there is nothing to treat as \"as\" says: leave it out",
            ));
        }
        (Some(change), None) => {
            let problem = Problem::new(
                StatusCode::CONFLICT,
                format!("the database changed ({change}), so it has to be said how to go on"),
            );
            return Err(problem.hint(
                "say \"as\": \"probe\" (what was claimed or pending may have been executed, and is looked into) or \
                 \"as\": \"resend\" (it was not, and is sent)",
            ));
        }
        (Some(_), Some(treated)) => {
            let treatment = match treated {
                As::Probe => Treatment::Probe,
                As::Resend => Treatment::Resend,
            };
            let moved = store.go_on(&by, &origin.is, treatment).await?;
            (Some(u64::try_from(moved).unwrap_or(u64::MAX)), Vec::new())
        }
    };
    Ok(Json(Resumed {
        moved,
        resumed,
        still_paused: store.overview().await?.paused,
    }))
}

/// A name that a row could have.
fn leaf(name: String) -> Result<String, Problem> {
    let length = name.chars().count();
    if (1..=100).contains(&length) && !name.contains('\0') {
        Ok(name)
    } else {
        Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "a leaf's name has 1 to 100 characters, none of them NUL",
        ))
    }
}
