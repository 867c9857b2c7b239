//! What the operator's page watches: batches that are stuck, what was confirmed and done by hand lately. The cost of each follows the work
//! in hand, or is bounded; never the history.

use std::collections::BTreeMap;

use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::column;
use crate::{
    domain::call::CallId,
    store::{Store, StoreError},
};

/// Among so many of the latest results, those of the last minute are counted.
const RESULTS: i64 = 1000;

/// Among so many of the latest calls that failed, those of the last hour are counted.
const FAILED: i64 = 1000;

/// Among so many of the latest actions, those that no job did are looked for.
const ACTIONS: i64 = 5000;

/// So many batches that are being undone are asked why they wait.
const UNDONE: i64 = 200;

/// A search looks through so many calls.
const SEARCHED: i64 = 20_000;

/// A batch that waits for somebody, or has not moved for long.
#[derive(Debug, Clone, PartialEq)]
pub struct StuckBatch {
    /// Its id.
    pub id: Uuid,
    /// The app's name for it.
    pub name: Option<String>,
    /// Its state.
    pub state: String,
    /// What it waits for, where that is somebody.
    pub reason: Option<String>,
    /// Seconds for which it has waited.
    pub waits: f64,
    /// The first of its calls that a person could move.
    pub call: Option<CallId>,
    /// How many such batches there are.
    pub all: u64,
}

/// Something that a person did.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// To which call.
    pub call: Option<CallId>,
    /// To which batch.
    pub batch: Option<Uuid>,
    /// To which leaf.
    pub leaf: Option<String>,
    /// Why.
    pub reason: String,
    /// Seconds since.
    pub ago: f64,
}

/// The calls that failed in the last hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failed {
    /// By leaf.
    pub by_leaf: BTreeMap<String, u64>,
    /// There are more than were counted.
    pub more: bool,
}

/// When a live call was claimed, and what comes next. Times are as PostgreSQL writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Every claim so far.
    pub tries: i32,
    /// Probes whose answer was unclear, in this doubt.
    pub probes: i32,
    /// Instances that went down with it.
    pub crashes: i32,
    /// The first claim.
    pub first_claimed_at: Option<String>,
    /// The latest one.
    pub claimed_at: Option<String>,
    /// When the latest attempt can last have been alive.
    pub alive_until: Option<String>,
    /// When it is given up.
    pub give_up_at: Option<String>,
    /// Why it is to be cancelled, once it is known what became of it.
    pub cancel_requested: Option<String>,
    /// Who has claimed it last.
    pub instance: Option<String>,
}

/// What a leaf said last to a call that it did not confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastWords {
    /// Its status.
    pub status: Option<i32>,
    /// The beginning of its answer.
    pub body: String,
}

/// What a search looked through, and what it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The calls, the newest first.
    pub ids: Vec<CallId>,
    /// It looked back as far as this call.
    pub oldest: Option<CallId>,
    /// There are older ones that it did not look at.
    pub more: bool,
}

impl Store {
    /// Batches that wait for somebody or have not moved for long, the oldest first; at most `limit`.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn stuck_batches(&self, limit: i64) -> Result<Vec<StuckBatch>, StoreError> {
        const OPERATION: &str = "look at batches that are stuck";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/stuck_batches.sql"),
                &[(&limit, Type::INT8), (&UNDONE, Type::INT8)],
            )
            .await?;
        let read = |row: &Row| {
            Ok(StuckBatch {
                id: column(OPERATION, row, "id")?,
                name: column(OPERATION, row, "name")?,
                state: column(OPERATION, row, "state")?,
                reason: column(OPERATION, row, "reason")?,
                waits: column(OPERATION, row, "waits")?,
                call: column(OPERATION, row, "call")?,
                all: number(OPERATION, row, "all_batches")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Confirmations in a minute, by leaf.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn confirmed_per_minute(&self) -> Result<BTreeMap<String, f64>, StoreError> {
        const OPERATION: &str = "count what was confirmed lately";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/recent_results.sql"),
                &[(&RESULTS, Type::INT8)],
            )
            .await?;
        let read = |row: &Row| {
            Ok((
                column(OPERATION, row, "leaf")?,
                column(OPERATION, row, "per_minute")?,
            ))
        };
        rows.iter().map(read).collect()
    }

    /// Calls that failed in the last hour.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn failed_lately(&self) -> Result<Failed, StoreError> {
        const OPERATION: &str = "count what failed lately";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/failed_lately.sql"),
                &[(&FAILED, Type::INT8)],
            )
            .await?;
        let read = |row: &Row| {
            Ok((
                column(OPERATION, row, "leaf")?,
                number(OPERATION, row, "calls")?,
            ))
        };
        let by_leaf: BTreeMap<String, u64> = rows.iter().map(read).collect::<Result<_, _>>()?;
        let all: u64 = by_leaf.values().sum();
        Ok(Failed {
            more: all >= FAILED.unsigned_abs(),
            by_leaf,
        })
    }

    /// Batches whose ids lie between these two, by id; at most `limit`.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn batches_between(
        &self,
        from: Uuid,
        to: Uuid,
        limit: i64,
    ) -> Result<Vec<Uuid>, StoreError> {
        const OPERATION: &str = "look for batches by the beginning of their id";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/batches_like.sql"),
                &[(&from, Type::UUID), (&to, Type::UUID), (&limit, Type::INT8)],
            )
            .await?;
        rows.iter()
            .map(|row| column(OPERATION, row, "id"))
            .collect()
    }

    /// The latest so many actions of people that no job did, the newest first.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn recent_actions(&self, limit: i64) -> Result<Vec<Action>, StoreError> {
        const OPERATION: &str = "read what people did lately";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/recent_actions.sql"),
                &[(&limit, Type::INT8), (&ACTIONS, Type::INT8)],
            )
            .await?;
        let read = |row: &Row| {
            Ok(Action {
                actor: column(OPERATION, row, "actor")?,
                action: column(OPERATION, row, "action")?,
                call: column(OPERATION, row, "call_id")?,
                batch: column(OPERATION, row, "batch_id")?,
                leaf: column(OPERATION, row, "leaf")?,
                reason: column(OPERATION, row, "reason")?,
                ago: column(OPERATION, row, "ago")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// The claim of a live call; `None` once it is final.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn claim_of(&self, call: CallId) -> Result<Option<Claim>, StoreError> {
        const OPERATION: &str = "show a claim";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/show_claim.sql"),
                &[(&call, Type::INT8)],
            )
            .await?;
        let read = |row: &Row| {
            Ok(Claim {
                tries: column(OPERATION, row, "tries")?,
                probes: column(OPERATION, row, "probes")?,
                crashes: column(OPERATION, row, "crashes")?,
                first_claimed_at: column(OPERATION, row, "first_claimed_at")?,
                claimed_at: column(OPERATION, row, "claimed_at")?,
                alive_until: column(OPERATION, row, "alive_until")?,
                give_up_at: column(OPERATION, row, "give_up_at")?,
                cancel_requested: column(OPERATION, row, "cancel_requested")?,
                instance: column(OPERATION, row, "instance")?,
            })
        };
        rows.first().map(read).transpose()
    }

    /// What the leaf said last to each of these calls, where it said something.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn last_words(
        &self,
        calls: &[CallId],
    ) -> Result<BTreeMap<CallId, LastWords>, StoreError> {
        const OPERATION: &str = "read what leaves said last";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/last_words.sql"),
                &[(&calls, Type::INT8_ARRAY)],
            )
            .await?;
        let read = |row: &Row| {
            let words = LastWords {
                status: column(OPERATION, row, "status")?,
                body: column(OPERATION, row, "body")?,
            };
            Ok((column(OPERATION, row, "id")?, words))
        };
        rows.iter().map(read).collect()
    }

    /// Calls whose tags contain one of these JSON objects, or whose key contains this text: among the newest ones before
    /// that id, and among those that are live.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn search(
        &self,
        tags: &[String],
        key: Option<&str>,
        before: CallId,
        limit: i64,
    ) -> Result<Found, StoreError> {
        const OPERATION: &str = "search calls";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/search_calls.sql"),
                &[
                    (&tags, Type::TEXT_ARRAY),
                    (&key, Type::TEXT),
                    (&before, Type::INT8),
                    (&SEARCHED, Type::INT8),
                    (&limit, Type::INT8),
                ],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        Ok(Found {
            ids: column(OPERATION, row, "ids")?,
            oldest: column(OPERATION, row, "oldest")?,
            more: column::<i64>(OPERATION, row, "looked_at")? == SEARCHED,
        })
    }
}

fn number(operation: &'static str, row: &Row, name: &str) -> Result<u64, StoreError> {
    column::<i64>(operation, row, name).map(i64::unsigned_abs)
}
