//! `/jobs` and `/jobs/{id}`: how far changes of many calls are.

use axum::{
    extract::{Path, Query, Request, State},
    http::StatusCode,
    response::Response,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    act::{Form, Undone, read, refuse, refused},
    problem::{PageProblem, from_store},
    render,
    view::{Button, Moment, form},
    visit::{Visit, percent},
};
use crate::{present::text::Fields, surface::Surface};

/// Jobs on one page.
const JOBS: usize = 50;

/// What the template is given.
#[derive(Debug, Serialize)]
pub(super) struct JobPage {
    id: String,
    action: String,
    state: String,
    tone: &'static str,
    actor: String,
    reason: String,
    /// The calls that are meant.
    list: String,
    filter: String,
    matched: Option<u64>,
    done: u64,
    refused: u64,
    seen_to: u64,
    spread: Option<String>,
    error: Option<String>,
    times: Vec<(&'static str, Moment)>,
    refusals: Vec<Refused>,
    buttons: Vec<Button>,
}

#[derive(Debug, Serialize)]
struct Refused {
    id: String,
    message: String,
    hint: Option<String>,
}

impl JobPage {
    /// Of its row as JSON.
    pub(super) fn of(json: &str) -> Self {
        let row = Fields::read(json).unwrap_or_default();
        let number = |name: &str| -> Option<u64> { row.text(name)?.parse().ok() };
        let (done, refused) = (
            number("done").unwrap_or_default(),
            number("refused").unwrap_or_default(),
        );
        let (id, state) = (row.cell("id"), row.cell("state"));
        let now = Timestamp::now();
        let times = [
            ("begun", "created_at"),
            ("last step", "changed_at"),
            ("ended", "finished_at"),
        ];
        let times = times
            .into_iter()
            .filter_map(|(label, name)| Some((label, Moment::read(&row.text(name)?, now))));
        let says = "What it has done stands; the rest is left as it is.";
        let end = form(format!("/jobs/{id}"), "cancel", "End it", says);
        Self {
            action: row.cell("action").replace('_', " "),
            tone: match state.as_str() {
                "running" => "moving",
                "done" if refused == 0 => "good",
                "done" => "doubt",
                "failed" => "bad",
                _ => "over",
            },
            actor: row.cell("actor"),
            reason: row.cell("reason"),
            list: list(&row.cell("filter")),
            filter: row.cell("filter"),
            matched: number("matched"),
            done,
            refused,
            seen_to: done + refused,
            spread: row.text("spread"),
            error: row.text("error"),
            times: times.collect(),
            refusals: Fields::read_all(&row.cell("refusals"))
                .iter()
                .map(|refusal| Refused {
                    id: refusal.cell("id"),
                    message: refusal.cell("message"),
                    hint: refusal.text("hint"),
                })
                .collect(),
            buttons: if state == "running" {
                vec![end]
            } else {
                Vec::new()
            },
            id,
            state,
        }
    }
}

/// The query of `/jobs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AskedJobs {
    after: Option<i64>,
}

#[derive(Debug, Serialize)]
struct JobsPage {
    jobs: Vec<JobPage>,
    goes_on: bool,
    next: Option<String>,
}

/// `GET /jobs`
pub(super) async fn jobs(
    State(surface): State<Surface>,
    visit: Visit,
    Query(asked): Query<AskedJobs>,
) -> Result<Response, PageProblem> {
    let jobs = surface.people().jobs(asked.after, JOBS + 1).await;
    let mut jobs = jobs.map_err(|error| from_store(&visit, error))?;
    let more = jobs.len() > JOBS;
    jobs.truncate(JOBS);
    let last = jobs.last().filter(|_| more);
    let page = JobsPage {
        next: last.map(|job| format!("/jobs?after={}", job.id)),
        goes_on: asked.after.is_some(),
        jobs: jobs.iter().map(|job| JobPage::of(&job.json)).collect(),
    };
    Ok(render::page(&visit, StatusCode::OK, "jobs.html", &page))
}

/// The list of the calls that a filter means.
fn list(filter: &str) -> String {
    let filter = Fields::read(filter).unwrap_or_default();
    let names = ["state", "leaf", "key", "batch", "reason", "stuck"];
    let pairs: Vec<String> = names
        .into_iter()
        .filter_map(|name| Some(format!("{name}={}", percent(&filter.text(name)?))))
        .collect();
    format!("/calls?{}", pairs.join("&"))
}

/// `GET /jobs/{id}`
pub(super) async fn job(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    visit: Visit,
) -> Result<Response, PageProblem> {
    let found = match id.parse() {
        Ok(id) => {
            let found = surface.people().job(id).await;
            found.map_err(|error| from_store(&visit, error))?
        }
        Err(_no_number) => None,
    };
    let Some(job) = found else {
        return Err(PageProblem::none(&visit, &format!("There is no job {id}.")));
    };
    let page = JobPage::of(&job.json);
    Ok(render::page(&visit, StatusCode::OK, "job.html", &page))
}

/// `POST /jobs/{id}`
pub(super) async fn on_job(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    visit: Visit,
    request: Request,
) -> Result<Response, PageProblem> {
    let form: Form = read(&visit, request).await?;
    let done = async {
        let number = id
            .parse()
            .map_err(|_no_number| refuse(format!("there is no job {id}"), "its number is whole"))?;
        if form.r#do != "cancel" {
            let message = format!("\"{}\" is nothing that can be done to a job", form.r#do);
            return Err(refuse(message, "use the button of its page"));
        }
        let by = form.by(&visit)?;
        surface.people().cancel_job(&by, number).await?;
        Ok(())
    };
    let here = format!("/jobs/{id}");
    let done = done.await;
    surface.forget();
    match done {
        Ok(()) => Ok(form.done(&visit, &here, format!("Job {id} is ended."))),
        Err(Undone::Store(error)) => Err(from_store(&visit, error)),
        Err(Undone::Refused(refusal)) => Ok(form.goes_on(&visit, &here, &refused(refusal))),
    }
}
