//! Actions on all calls that match a filter, as jobs.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::{StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    super::{
        Surface,
        meant::{meant, spread},
        problem::Problem,
    },
    act::{Act, Truth, change},
    calls::{Items, page},
    filter::{CallFilter, JobPage},
    query::{Named, Query},
    rows,
    told::{Told, Words, by},
};
use crate::{
    domain::call::CallId,
    present::json,
    store::operator::{
        act::{By, Change},
        job::NewJob,
    },
};

/// How long calls are counted before a job begins.
const COUNTING: Duration = Duration::from_secs(10);

/// An action on all calls that match a filter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ActOnCalls {
    /// Which calls; not empty. Without a state, those that the action is for.
    filter: CallFilter,
    /// Why; it is kept with each call's action.
    #[schema(value_type = String, min_length = 1, max_length = 1000)]
    reason: Words,
    /// Who acts; without one, `api@` and the address that the request came from.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1000)]
    actor: Option<Words>,
    /// Only say how many match, and change nothing.
    #[serde(default)]
    dry_run: bool,
    /// Refuse if another number of calls matches.
    expect_count: Option<u64>,
}

/// All failed calls that match a filter, to be sent again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryCalls {
    /// Which calls; not empty.
    filter: CallFilter,
    /// Why; it is kept with each call's action.
    #[schema(value_type = String, min_length = 1, max_length = 1000)]
    reason: Words,
    /// Who acts; without one, `api@` and the address that the request came from.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1000)]
    actor: Option<Words>,
    /// Only say how many match, and change nothing.
    #[serde(default)]
    dry_run: bool,
    /// Refuse if another number of calls matches.
    expect_count: Option<u64>,
    /// Over how long they are spread, such as `10m`, seven days at most: each call is due at some time within it.
    spread: Option<String>,
}

/// What is true of all calls that match a filter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveCalls {
    /// What is true.
    #[serde(rename = "as")]
    truth: Truth,
    /// Of `confirmed`: the status to keep as the leaf's; 200 unless it is said.
    #[schema(minimum = 100, maximum = 999)]
    status: Option<u16>,
    /// Of `confirmed`: the body to keep as the leaf's, any JSON.
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<Box<RawValue>>,
    /// Of `not_executed`: whether they are sent again (else they end as cancelled); true unless it is said.
    send: Option<bool>,
    /// Which calls; not empty. Without a state, those that are parked; for `waive` it has to be said.
    filter: CallFilter,
    /// Why; it is kept with each call's action.
    #[schema(value_type = String, min_length = 1, max_length = 1000)]
    reason: Words,
    /// Who says so; without one, `api@` and the address that the request came from.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1000)]
    actor: Option<Words>,
    /// Only say how many match, and change nothing.
    #[serde(default)]
    dry_run: bool,
    /// Refuse if another number of calls matches.
    expect_count: Option<u64>,
    /// Of `not_executed`: over how long they are spread, such as `10m`, seven days at most: each call is due at some time within it.
    spread: Option<String>,
}

/// What a dry run has found.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DryRun {
    /// So many calls match.
    matched: u64,
    /// All were counted; else there are more, and counting them would have taken long.
    complete: bool,
    /// The first of them.
    #[schema(value_type = Vec<i64>)]
    calls: Vec<CallId>,
}

/// Send all failed calls again that match.
///
/// The answer names a job, which goes on by itself: any instance works on it.
#[utoipa::path(post, path = "/api/v1/calls/retry", operation_id = "retry_calls", tag = "calls", request_body = RetryCalls,
    responses((status = 200, description = "A dry run: what matches.", body = DryRun),
        (status = 202, description = "The job has begun.", body = rows::Job, headers(("Location", description = "Where it tells how far it is.")))))]
pub(super) async fn retry(
    State(surface): State<Surface>,
    told: Told<RetryCalls>,
) -> Result<Response, Problem> {
    let Told { said, peer } = told;
    let asked = Asked {
        filter: said.filter,
        by: by(said.actor, said.reason, peer),
        dry_run: said.dry_run,
        expect_count: said.expect_count,
        spread: said.spread,
    };
    asked.begin(&surface, Change::Retry).await
}

/// Keep all calls from being sent that match.
///
/// The answer names a job, which goes on by itself: any instance works on it.
#[utoipa::path(post, path = "/api/v1/calls/cancel", operation_id = "cancel_calls", tag = "calls", request_body = ActOnCalls,
    responses((status = 200, description = "A dry run: what matches.", body = DryRun),
        (status = 202, description = "The job has begun.", body = rows::Job, headers(("Location", description = "Where it tells how far it is.")))))]
pub(super) async fn cancel(
    State(surface): State<Surface>,
    told: Told<ActOnCalls>,
) -> Result<Response, Problem> {
    told.asked().begin(&surface, Change::Cancel).await
}

/// Let the next call go behind each failed head that matches, once.
///
/// The answer names a job, which goes on by itself: any instance works on it.
#[utoipa::path(post, path = "/api/v1/calls/release", operation_id = "release_calls", tag = "calls", request_body = ActOnCalls,
    responses((status = 200, description = "A dry run: what matches.", body = DryRun),
        (status = 202, description = "The job has begun.", body = rows::Job, headers(("Location", description = "Where it tells how far it is.")))))]
pub(super) async fn release(
    State(surface): State<Surface>,
    told: Told<ActOnCalls>,
) -> Result<Response, Problem> {
    told.asked().begin(&surface, Change::Release).await
}

/// Say what is true of all calls that match and that nobody knows about.
///
/// The answer names a job, which goes on by itself: any instance works on it.
#[utoipa::path(post, path = "/api/v1/calls/resolve", operation_id = "resolve_calls", tag = "calls", request_body = ResolveCalls,
    responses((status = 200, description = "A dry run: what matches.", body = DryRun),
        (status = 202, description = "The job has begun.", body = rows::Job, headers(("Location", description = "Where it tells how far it is.")))))]
pub(super) async fn resolve(
    State(surface): State<Surface>,
    told: Told<ResolveCalls>,
) -> Result<Response, Problem> {
    let Told { said, peer } = told;
    let change = change(said.truth, said.status, said.body.as_deref(), said.send)?;
    let asked = Asked {
        filter: said.filter,
        by: by(said.actor, said.reason, peer),
        dry_run: said.dry_run,
        expect_count: said.expect_count,
        spread: said.spread,
    };
    asked.begin(&surface, change).await
}

/// List jobs, the newest first.
#[utoipa::path(get, path = "/api/v1/jobs", operation_id = "list_jobs", tag = "jobs", params(JobPage),
    responses((status = 200, description = "A page of jobs.", body = rows::JobList)))]
pub(super) async fn list(
    State(surface): State<Surface>,
    uri: Uri,
    Query(part, Nothing {}): Query<JobPage, Nothing>,
) -> Result<Response, Problem> {
    let mut jobs = surface
        .stores
        .people
        .jobs(part.after, part.limit + 1)
        .await?;
    if !surface.show_bodies {
        for job in &mut jobs {
            job.json = json::without_a_job_s_body(&job.json)?;
        }
    }
    page(
        jobs,
        part.limit,
        None,
        &uri,
        |job| (job.id, job.json),
        Items::Jobs,
    )
}

/// Show how far a job is.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", operation_id = "show_job", tag = "jobs",
    params(("id" = i64, Path, description = "The job.")),
    responses((status = 200, description = "The job.", body = rows::Job)))]
pub(super) async fn show(
    State(surface): State<Surface>,
    Named(id): Named<i64>,
) -> Result<Json<Box<RawValue>>, Problem> {
    let job = surface.stores.people.job(id).await?;
    let job = job.ok_or_else(|| super::absent(format!("there is no job {id}")))?;
    shown(&surface, job.json).map(Json)
}

/// End a job. What it has done stands.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", operation_id = "cancel_job", tag = "jobs",
    params(("id" = i64, Path, description = "The job.")), request_body = Act,
    responses((status = 200, description = "It has ended.", body = rows::Job)))]
pub(super) async fn end(
    State(surface): State<Surface>,
    Named(id): Named<i64>,
    told: Told<Act>,
) -> Result<Json<Box<RawValue>>, Problem> {
    let by = by(told.said.actor, told.said.reason, told.peer);
    let job = surface.stores.people.cancel_job(&by, id).await?;
    shown(&surface, job.json).map(Json)
}

fn shown(surface: &Surface, job: String) -> Result<Box<RawValue>, Problem> {
    let job = if surface.show_bodies {
        job
    } else {
        json::without_a_job_s_body(&job)?
    };
    Ok(RawValue::from_string(job)?)
}

/// There are no such parameters.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
pub(super) struct Nothing {}

/// What all of the bodies ask for. (They are written out one by one, since serde refuses no unknown field where one is
/// flattened into another.)
struct Asked {
    filter: CallFilter,
    by: By,
    dry_run: bool,
    expect_count: Option<u64>,
    spread: Option<String>,
}

impl Told<ActOnCalls> {
    fn asked(self) -> Asked {
        let Self { said, peer } = self;
        Asked {
            filter: said.filter,
            by: by(said.actor, said.reason, peer),
            dry_run: said.dry_run,
            expect_count: said.expect_count,
            spread: None,
        }
    }
}

impl Asked {
    async fn begin(self, surface: &Surface, change: Change<'_>) -> Result<Response, Problem> {
        let spread = self.spread(change)?;
        let filter = meant(self.filter.into(), change).map_err(wrong)?;
        let store = &surface.stores.people;
        let matching = store.matching(&filter, COUNTING).await?;
        if self.dry_run {
            let found = DryRun {
                matched: matching.number,
                complete: matching.complete,
                calls: matching.first,
            };
            return Ok(Json(found).into_response());
        }
        if let Some(expected) = self.expect_count
            && !(matching.complete && matching.number == expected)
        {
            let more = if matching.complete { "" } else { "more than " };
            let detail = format!(
                "{more}{} calls match, and {expected} were expected; nothing is changed",
                matching.number
            );
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
        let job = NewJob {
            change,
            filter: &filter,
            spread,
            last: matching.last,
            matched: matching.complete.then_some(matching.number),
        };
        let job = store.begin_job(&self.by, &job).await?;
        surface.context.nudges.jobs.give();
        let location = [(header::LOCATION, format!("/api/v1/jobs/{}", job.id))];
        let job = shown(surface, job.json)?;
        Ok((StatusCode::ACCEPTED, location, Json(job)).into_response())
    }

    fn spread(&self, change: Change<'_>) -> Result<Option<Duration>, Problem> {
        let Some(text) = &self.spread else {
            return Ok(None);
        };
        if !matches!(change, Change::Retry | Change::NotExecutedSend) {
            return Err(wrong(
                "spread goes with what is sent again: \"as\": \"not_executed\", without \"send\": false",
            ));
        }
        let spread = spread(text).map_err(|flaw| wrong(format!("spread: {flaw}")))?;
        Ok(Some(spread))
    }
}

fn wrong(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}
