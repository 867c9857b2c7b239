//! Changes of all calls that match a filter, as jobs: rows that say how far each has come.
//!
//! A step changes the next few calls and writes down how far the job is, in one transaction. Nobody owns a job: who
//! finds its row unlocked takes the next step. So what a crash interrupts goes on in another instance, or in this one
//! once it runs again, and no call is taken twice.

mod step;

pub use step::{Step, Steps};

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_postgres::{Row, types::Type};

use super::{
    act::{ActError, By, Change, LOCK_WAIT, Refusal},
    column,
    list::{Filter, Order, Page},
};
use crate::{
    domain::call::CallId,
    store::{Store, StoreError},
};

/// So many calls are counted in one statement.
const COUNTED: usize = 1000;

/// Of about so many that could match. How far a look has come is known after it, also where it has found none.
const LOOKED: usize = 10_000;

/// So many ids are named of those that match.
const NAMED: usize = 100;

/// What matches a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matching {
    /// So many calls.
    pub number: u64,
    /// The first of them.
    pub first: Vec<CallId>,
    /// All were counted; else there are more.
    pub complete: bool,
    /// The highest id of a call when it was looked.
    pub last: CallId,
}

/// A change of all calls that match a filter.
#[derive(Debug, Clone)]
pub struct NewJob<'a> {
    /// What is done.
    pub change: Change<'a>,
    /// To which calls.
    pub filter: &'a Filter,
    /// Over how long what is sent again is spread.
    pub spread: Option<Duration>,
    /// Calls up to this id are meant.
    pub last: CallId,
    /// So many match; `None` where they were not counted to the end.
    pub matched: Option<u64>,
}

/// A job as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Its number.
    pub id: i64,
    /// The row as a JSON object.
    pub json: String,
}

/// What is said of calls beside the action.
#[derive(Debug, Default, Serialize)]
struct Detail<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send: Option<bool>,
}

impl Change<'_> {
    /// The action as `operator_action` and jobs name it, and what else is said.
    fn told(&self) -> serde_json::Result<(&'static str, String)> {
        let mut detail = Detail::default();
        let body;
        let action = match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Release => "release",
            Self::Waive => "waive",
            Self::NotExecutedSend | Self::NotExecutedEnd => {
                detail.send = Some(*self == Self::NotExecutedSend);
                "resolve_not_executed"
            }
            Self::Confirm { status, body: said } => {
                detail.status = Some(*status);
                body = said
                    .map(|text| RawValue::from_string(text.to_owned()))
                    .transpose()?;
                detail.body = body.as_deref();
                "resolve_confirmed"
            }
        };
        Ok((action, serde_json::to_string(&detail)?))
    }
}

impl Store {
    /// Counts the calls that match, for about as long as that.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn matching(&self, filter: &Filter, time: Duration) -> Result<Matching, StoreError> {
        let end = Instant::now() + time;
        let mut matching = Matching {
            number: 0,
            first: Vec::new(),
            complete: false,
            last: self.newest_call().await?,
        };
        let mut after = None;
        loop {
            let page = Page {
                order: Order::Oldest,
                after,
                limit: COUNTED,
            };
            let (calls, given_up) = self.calls_among(filter, page, LOOKED).await?;
            let meant = calls.iter().filter(|call| call.id <= matching.last);
            let ids: Vec<CallId> = meant.map(|call| call.id).collect();
            matching.number += u64::try_from(ids.len()).unwrap_or_default();
            let room = NAMED.saturating_sub(matching.first.len());
            matching.first.extend(ids.iter().take(room));
            if ids.len() < COUNTED && given_up.is_none() {
                matching.complete = true;
                return Ok(matching);
            }
            if Instant::now() >= end {
                return Ok(matching);
            }
            after = given_up.or(ids.last().copied());
        }
    }

    async fn newest_call(&self) -> Result<CallId, StoreError> {
        const OPERATION: &str = "look for the newest call";
        let sql = include_str!("../../../../sql/queries/job_newest_call.sql");
        let rows = self.query(OPERATION, sql, &[]).await?;
        rows.first()
            .map_or(Ok(0), |row| column(OPERATION, row, "id"))
    }

    /// Begins a job.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn begin_job(&self, by: &By, job: &NewJob<'_>) -> Result<JobRow, StoreError> {
        const OPERATION: &str = "begin a job";
        let no_json = |error: serde_json::Error| StoreError::other(OPERATION, error.to_string());
        let (action, detail) = job.change.told().map_err(no_json)?;
        let filter = serde_json::to_string(job.filter).map_err(no_json)?;
        let spread = job.spread.map(|spread| spread.as_secs_f64());
        let matched = job
            .matched
            .map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../../../sql/queries/job_add.sql"),
                &[
                    (&action, Type::TEXT),
                    (&filter, Type::TEXT),
                    (&detail, Type::TEXT),
                    (&by.actor, Type::TEXT),
                    (&by.reason, Type::TEXT),
                    (&spread, Type::FLOAT8),
                    (&job.last, Type::INT8),
                    (&matched, Type::INT8),
                ],
            )
            .await?;
        job_rows(OPERATION, &rows)?
            .pop()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))
    }

    /// Jobs, the newest first, behind that one; at most `limit`.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn jobs(&self, after: Option<i64>, limit: usize) -> Result<Vec<JobRow>, StoreError> {
        self.list_jobs(None, after.unwrap_or(i64::MAX), limit).await
    }

    /// The job with this number, or `None`.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn job(&self, id: i64) -> Result<Option<JobRow>, StoreError> {
        Ok(self.list_jobs(Some(id), 0, 0).await?.pop())
    }

    async fn list_jobs(
        &self,
        id: Option<i64>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<JobRow>, StoreError> {
        const OPERATION: &str = "list jobs";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = include_str!("../../../../sql/queries/job_list.sql");
        let params = [
            (&id as _, Type::INT8),
            (&after as _, Type::INT8),
            (&limit as _, Type::INT8),
        ];
        job_rows(OPERATION, &self.query(OPERATION, sql, &params).await?)
    }

    /// Ends a job. What it has done stands.
    ///
    /// # Errors
    /// It runs no more, or there is none, or the database did not answer.
    pub async fn cancel_job(&self, by: &By, id: i64) -> Result<JobRow, ActError> {
        const OPERATION: &str = "cancel a job";
        let (transaction, _) = self.lock(OPERATION, by, &[]).await?;
        let sql = include_str!("../../../../sql/queries/job_cancel.sql");
        let params = [(&id as _, Type::INT8), (&by.reason as _, Type::TEXT)];
        let rows = transaction.last(sql, &params).await?;
        if let Some(job) = job_rows(OPERATION, &rows)?.pop() {
            return Ok(job);
        }
        Err(match self.job(id).await? {
            Some(_) => Refusal::new(
                format!("job {id} does not run any more"),
                "what it has done stands",
            ),
            None => Refusal::absent(format!("there is no job {id}"), "list them: /api/v1/jobs"),
        }
        .into())
    }
}

fn job_rows(operation: &'static str, rows: &[Row]) -> Result<Vec<JobRow>, StoreError> {
    let rows = rows.iter().map(|row| {
        Ok(JobRow {
            id: column(operation, row, "id")?,
            json: column(operation, row, "json")?,
        })
    });
    rows.collect()
}
