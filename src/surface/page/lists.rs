//! `/calls` and `/batches`: lists by filter, a page at a time.

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    bulk,
    problem::{PageProblem, from_store},
    render,
    view::{Button, Line, tone},
    visit::{Visit, percent},
};
use crate::{
    present::{
        standing::{batch_standing, numbers},
        text::age,
    },
    store::operator::{
        STATES,
        batches::{BATCH_STATES, BatchFilter, BatchRow},
        list::{Filter, LOOKED, Order, Page},
    },
    surface::{Surface, problem::Problem},
};

/// Calls on one page.
const CALLS: usize = 50;

/// Batches on one page: each has its calls counted.
const BATCHES: usize = 30;

/// The query of `/calls`. A form sends every field, so an empty one says nothing.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Asked {
    state: String,
    leaf: String,
    key: String,
    batch: String,
    reason: String,
    stuck: String,
    order: String,
    after: String,
}

#[derive(Debug, Serialize)]
struct CallsPage {
    asked: Asked,
    states: &'static [&'static str],
    leaves: Vec<String>,
    calls: Vec<Line>,
    /// The next page.
    next: Option<String>,
    /// So many were looked through that this is not all of the page.
    gave_up: bool,
    /// Not the first page.
    goes_on: bool,
    first: String,
    /// What can be done to all that match.
    buttons: Vec<Button>,
}

fn given(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

impl Asked {
    /// Which calls.
    pub(super) fn filter(&self) -> Result<Filter, String> {
        let batch = match given(&self.batch) {
            None => None,
            Some(text) => Some(uuid(&text)?),
        };
        Ok(Filter {
            state: one_of(&self.state, STATES)?,
            leaf: given(&self.leaf),
            key: given(&self.key),
            batch,
            reason: given(&self.reason),
            stuck: self.stuck == "true",
            ..Filter::default()
        })
    }

    fn page(&self) -> Result<Page, String> {
        let after = match given(&self.after) {
            None => None,
            Some(text) => Some(
                text.parse()
                    .map_err(|_no_number| format!("after = {text} is no id of a call"))?,
            ),
        };
        let order = match self.order.as_str() {
            "oldest" => Order::Oldest,
            _ => Order::Newest,
        };
        Ok(Page {
            order,
            after,
            limit: CALLS + 1,
        })
    }

    /// The same list, behind that call; or from its beginning.
    pub(super) fn behind(&self, after: Option<i64>) -> String {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let pairs = [
            ("state", &self.state),
            ("leaf", &self.leaf),
            ("key", &self.key),
            ("batch", &self.batch),
            ("reason", &self.reason),
            ("stuck", &self.stuck),
            ("order", &self.order),
            ("after", &after),
        ];
        query("/calls", &pairs)
    }
}

fn query(path: &str, pairs: &[(&str, &String)]) -> String {
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={}", percent(value)))
        .collect();
    if pairs.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", pairs.join("&"))
    }
}

fn uuid(text: &str) -> Result<Uuid, String> {
    text.parse()
        .map_err(|_no_uuid| format!("a batch's id is a UUID, which {text} is not"))
}

fn one_of(text: &str, states: &[&str]) -> Result<Option<String>, String> {
    match given(text) {
        Some(state) if !states.contains(&state.as_str()) => {
            let known = states.join(", ");
            Err(format!("there is no state {state}, but {known}"))
        }
        state => Ok(state),
    }
}

/// `GET /calls`
pub(super) async fn calls(
    State(surface): State<Surface>,
    visit: Visit,
    Query(asked): Query<Asked>,
) -> Result<Response, PageProblem> {
    let wrong = |detail| PageProblem::new(&visit, &Problem::new(StatusCode::BAD_REQUEST, detail));
    let filter = asked.filter().map_err(wrong)?;
    let page = asked.page().map_err(wrong)?;
    let found = surface.people().calls_among(&filter, page, LOOKED).await;
    let (mut calls, given_up) = found.map_err(|error| from_store(&visit, error))?;
    let more = calls.len() > CALLS;
    calls.truncate(CALLS);
    let last = calls.last().filter(|_| more).map(|last| last.id);
    let shown = CallsPage {
        states: STATES,
        leaves: surface.context.lanes.names(),
        next: last.or(given_up).map(|last| asked.behind(Some(last))),
        gave_up: given_up.is_some(),
        goes_on: page.after.is_some(),
        first: asked.behind(None),
        buttons: bulk::buttons(&filter, &asked.behind(None)),
        calls: calls.iter().map(Line::of).collect(),
        asked,
    };
    Ok(render::page(&visit, StatusCode::OK, "calls.html", &shown))
}

/// The query of `/batches`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct AskedBatches {
    state: String,
    stuck: String,
    after: String,
}

#[derive(Debug, Serialize)]
struct BatchesPage {
    asked: AskedBatches,
    states: &'static [&'static str],
    batches: Vec<BatchLine>,
    next: Option<String>,
    goes_on: bool,
    first: String,
}

#[derive(Debug, Serialize)]
pub(super) struct BatchLine {
    id: String,
    name: Option<String>,
    standing: String,
    tone: &'static str,
    stuck: bool,
    calls: String,
    effects: u64,
    age: String,
}

impl BatchLine {
    /// Where its page is.
    pub(super) fn path(&self) -> String {
        format!("/batches/{}", self.id)
    }

    /// Of a row.
    pub(super) fn of(batch: &BatchRow) -> Self {
        Self {
            id: batch.id.to_string(),
            name: batch.name.clone(),
            standing: batch_standing(batch),
            tone: if batch.reason.as_deref() == Some("teardown_incomplete") {
                "bad"
            } else {
                tone(&batch.state)
            },
            stuck: batch.stuck,
            calls: numbers(&batch.calls),
            effects: batch.standing,
            age: batch.age.map(age).unwrap_or_default(),
        }
    }
}

/// `GET /batches`
pub(super) async fn batches(
    State(surface): State<Surface>,
    visit: Visit,
    Query(asked): Query<AskedBatches>,
) -> Result<Response, PageProblem> {
    let wrong = |detail| PageProblem::new(&visit, &Problem::new(StatusCode::BAD_REQUEST, detail));
    let filter = BatchFilter {
        state: one_of(&asked.state, BATCH_STATES).map_err(wrong)?,
        stuck: asked.stuck == "true",
    };
    let after = match given(&asked.after) {
        None => None,
        Some(text) => Some(uuid(&text).map_err(wrong)?),
    };
    let batches = surface.people().batches(&filter, after, BATCHES).await;
    let batches = batches.map_err(|error| from_store(&visit, error))?;
    let behind = |after: String| {
        let pairs = [
            ("state", &asked.state),
            ("stuck", &asked.stuck),
            ("after", &after),
        ];
        query("/batches", &pairs)
    };
    let next = batches.last().filter(|_| batches.len() == BATCHES);
    let shown = BatchesPage {
        states: BATCH_STATES,
        next: next.map(|last| behind(last.id.to_string())),
        goes_on: after.is_some(),
        first: behind(String::new()),
        batches: batches.iter().map(BatchLine::of).collect(),
        asked,
    };
    Ok(render::page(&visit, StatusCode::OK, "batches.html", &shown))
}
