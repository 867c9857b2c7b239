//! The steps of jobs.

use std::time::Duration;

use serde::Serialize;
use tokio_postgres::{Row, types::Type};

use super::{
    super::{
        act::{ActError, By, Change, GROUP, LOCK_WAIT, Refusal, Target},
        apply::{Applied, apply, ids_of, lock_further},
        column,
        list::{Filter, Order, Page},
    },
    LOOKED,
};
use crate::{
    domain::call::CallId,
    store::{Store, StoreError, Transaction, int4},
};

const WORK: &str = "work on a job";

/// A step waits no longer for an app's transaction that holds one of its calls.
const STEP_LOCK_WAIT: Duration = Duration::from_millis(100);

/// Where it met one, it goes through its calls one by one, and refuses those that are held: a person who ends the job
/// waits for the step.
const ONE_LOCK_WAIT: &str = "SET LOCAL lock_timeout = '10ms'";

/// So many refusals are kept of one job.
const REFUSALS: usize = 20;

/// So many jobs get their turns.
const JOBS: i64 = 20;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The job.
    pub job: i64,
    /// It was the last one.
    pub last: bool,
}

/// What became of a look at all jobs that run.
#[derive(Debug, Default)]
pub struct Steps {
    /// What was done.
    pub taken: Vec<Step>,
    /// Jobs that this program can't read, as those of a newer one: they are left to others.
    pub left: Vec<(i64, StoreError)>,
}

/// A job that runs.
#[derive(Debug)]
struct Job {
    id: i64,
    action: String,
    filter: Filter,
    status: Option<i32>,
    body: Option<String>,
    send: Option<bool>,
    by: By,
    spread: Option<f64>,
    last: CallId,
    after: CallId,
}

#[derive(Debug, Serialize)]
struct Refused {
    id: CallId,
    message: String,
    hint: Option<String>,
}

impl Job {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let id: i64 = column(WORK, row, "id")?;
        let filter: &str = column(WORK, row, "filter")?;
        Ok(Self {
            id,
            action: column(WORK, row, "action")?,
            filter: serde_json::from_str(filter).map_err(|flaw| StoreError::row(WORK, id, flaw))?,
            status: column(WORK, row, "status")?,
            body: column(WORK, row, "body")?,
            send: column(WORK, row, "send")?,
            by: By {
                actor: column(WORK, row, "actor")?,
                reason: column(WORK, row, "reason")?,
            },
            spread: column(WORK, row, "spread")?,
            last: column(WORK, row, "last_id")?,
            after: column(WORK, row, "after_id")?,
        })
    }

    fn change(&self) -> Result<Change<'_>, StoreError> {
        Ok(match self.action.as_str() {
            "retry" => Change::Retry,
            "cancel" => Change::Cancel,
            "release" => Change::Release,
            "waive" => Change::Waive,
            "resolve_not_executed" if self.send == Some(false) => Change::NotExecutedEnd,
            "resolve_not_executed" => Change::NotExecutedSend,
            "resolve_confirmed" => Change::Confirm {
                status: self
                    .status
                    .and_then(|status| status.try_into().ok())
                    .unwrap_or(200),
                body: self.body.as_deref(),
            },
            other => {
                return Err(StoreError::row(
                    WORK,
                    self.id,
                    format!("unknown action {other}"),
                ));
            }
        })
    }
}

impl Store {
    /// Takes one step of each job that runs and that nobody else is at.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn work_on_jobs(&self) -> Result<Steps, StoreError> {
        let sql = include_str!("../../../../sql/queries/job_running.sql");
        let rows = self
            .query("look for jobs", sql, &[(&JOBS, Type::INT8)])
            .await?;
        let mut steps = Steps::default();
        for row in &rows {
            let job = match Job::read(row).and_then(|job| job.change().map(drop).and(Ok(job))) {
                Ok(job) => job,
                Err(flaw) => {
                    steps.left.push((column(WORK, row, "id")?, flaw));
                    continue;
                }
            };
            match self.work_on(&job).await {
                Ok(step) => steps.taken.extend(step),
                // The same again would fail again: a right that is missing, a fault of the server's.
                Err(error) if error.is_refusal() && !error.is_contention() => {
                    self.fail_job(job.id, &error).await?;
                    steps.taken.push(Step {
                        job: job.id,
                        last: true,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(steps)
    }

    /// `None` where another instance is at it, or it has ended.
    async fn work_on(&self, job: &Job) -> Result<Option<Step>, StoreError> {
        let change = job.change()?;
        let page = Page {
            order: Order::Oldest,
            after: Some(job.after),
            limit: GROUP,
        };
        let (mut calls, given_up) = self.calls_among(&job.filter, page, LOOKED).await?;
        let found = calls.len();
        calls.retain(|call| call.id <= job.last);
        let last = given_up.map_or(calls.len() < found || found < GROUP, |id| id >= job.last);
        let targets: Vec<Target> = calls
            .iter()
            .map(|call| Target {
                id: call.id,
                attempts: Some(call.attempts),
            })
            .collect();
        let end = targets.last().map(|target| target.id);
        let after = given_up.or(end).unwrap_or(job.after);

        let transaction = self.begin(WORK).await?;
        let take = include_str!("../../../../sql/queries/job_take.sql");
        let params = [(&job.id as _, Type::INT8), (&job.after as _, Type::INT8)];
        let taken = transaction.first(STEP_LOCK_WAIT, take, &params).await?;
        if taken.is_empty() {
            transaction.commit().await?;
            return Ok(None);
        }
        let applied = transaction.change_each(&job.by, change, &targets).await?;
        if let Some(spread) = job.spread {
            let done: Vec<CallId> = applied.done.iter().map(|(id, _)| *id).collect();
            let sql = include_str!("../../../../sql/queries/job_spread.sql");
            let params = [(&done as _, Type::INT8_ARRAY), (&spread as _, Type::FLOAT8)];
            transaction.next(sql, &params).await?;
        }
        transaction.keep(job, after, &applied, last).await?;
        Ok(Some(Step { job: job.id, last }))
    }

    async fn fail_job(&self, id: i64, error: &StoreError) -> Result<(), StoreError> {
        self.write(
            "end a job that failed",
            LOCK_WAIT,
            include_str!("../../../../sql/queries/job_fail.sql"),
            &[(&id, Type::INT8), (&error.to_string(), Type::TEXT)],
        )
        .await
        .map(drop)
    }
}

impl Transaction {
    /// Changes these calls; those that are refused are told apart from those that are not.
    async fn change_each(
        &self,
        by: &By,
        change: Change<'_>,
        targets: &[Target],
    ) -> Result<Applied, StoreError> {
        // Mostly none of them refuses.
        if let Ok(applied) = self.change_part(by, change, targets).await? {
            return Ok(applied);
        }
        self.next(ONE_LOCK_WAIT, &[]).await?;
        let mut all = Applied::default();
        for target in targets {
            match self.change_part(by, change, &[*target]).await? {
                Ok(part) => {
                    all.done.extend(part.done);
                    all.refused.extend(part.refused);
                }
                Err(refusal) => all.refused.push((target.id, refusal)),
            }
        }
        Ok(all)
    }

    /// Changes all of these calls, or none.
    async fn change_part(
        &self,
        by: &By,
        change: Change<'_>,
        targets: &[Target],
    ) -> Result<Result<Applied, Refusal>, StoreError> {
        self.next("SAVEPOINT part", &[]).await?;
        let applied = async {
            let locked = lock_further(self, by, &ids_of(targets)).await?;
            apply(self, by, change, targets, &locked).await
        };
        let (applied, end) = match applied.await {
            Ok(applied) => (Ok(applied), "RELEASE SAVEPOINT part"),
            Err(ActError::Refused(refusal)) => (Err(refusal), "ROLLBACK TO SAVEPOINT part"),
            Err(ActError::Store(fault)) => return Err(fault),
        };
        self.next(end, &[]).await?;
        Ok(applied)
    }

    /// Writes down how far the job has come, and ends the step.
    async fn keep(
        self,
        job: &Job,
        after: CallId,
        applied: &Applied,
        last: bool,
    ) -> Result<(), StoreError> {
        let refused = applied.refused.iter().take(REFUSALS);
        let refusals: Vec<Refused> = refused
            .map(|(id, refusal)| Refused {
                id: *id,
                message: refusal.message.clone(),
                hint: refusal.hint.clone(),
            })
            .collect();
        let refusals = serde_json::to_string(&refusals)
            .map_err(|error| StoreError::other(WORK, error.to_string()))?;
        let number = |calls: usize| i64::try_from(calls).unwrap_or(i64::MAX);
        self.last(
            include_str!("../../../../sql/queries/job_keep.sql"),
            &[
                (&job.id, Type::INT8),
                (&after, Type::INT8),
                (&number(applied.done.len()), Type::INT8),
                (&number(applied.refused.len()), Type::INT8),
                (&refusals, Type::TEXT),
                (&int4(REFUSALS), Type::INT4),
                (&last, Type::BOOL),
            ],
        )
        .await
        .map(drop)
    }
}
