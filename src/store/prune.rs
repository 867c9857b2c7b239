//! Takes away what has ended long ago, a window of rows at a time: a [`Sweep`] goes once through all that may be old.
//!
//! What may go, the statements say; each is a short transaction that waits for nobody. A sweep can be given up and begun
//! anew at any place.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Row, types::Type};
use uuid::Uuid;

use super::{Store, StoreError, column, pool::Param};
use crate::domain::{call::CallId, retention::Retention};

const LOCK_WAIT: Duration = Duration::from_millis(100);

/// So many rows are looked at in the first statement. Then as many as take between these times.
const FIRST: i32 = 100;
const LEAST: i32 = 1;
const MOST: i32 = 5000;
const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_millis(100);

/// Of one batch, so many calls go in one statement.
const OF_A_BATCH: i32 = 1000;

/// The statements, in the order in which a sweep runs them: what lets others go comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Batches,
    Calls,
    Attempts,
    Results,
    Bodies,
    Jobs,
    Actions,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Batches,
        Self::Calls,
        Self::Attempts,
        Self::Results,
        Self::Bodies,
        Self::Jobs,
        Self::Actions,
    ];

    fn age(self, kept: &Retention) -> Option<Duration> {
        match self {
            Self::Batches | Self::Calls | Self::Attempts => kept.finished,
            Self::Results => kept.results,
            Self::Bodies => kept.result_bodies,
            Self::Jobs | Self::Actions => kept.actions,
        }
    }

    const fn operation(self) -> &'static str {
        match self {
            Self::Batches => "prune batches",
            Self::Calls => "prune calls",
            Self::Attempts => "prune attempts",
            Self::Results => "prune results",
            Self::Bodies => "prune bodies",
            Self::Jobs => "prune jobs",
            Self::Actions => "prune actions",
        }
    }

    const fn sql(self) -> &'static str {
        match self {
            Self::Batches => include_str!("../../sql/queries/prune_batches.sql"),
            Self::Calls => include_str!("../../sql/queries/prune_calls.sql"),
            Self::Attempts => include_str!("../../sql/queries/prune_attempts.sql"),
            Self::Results => include_str!("../../sql/queries/prune_results.sql"),
            Self::Bodies => include_str!("../../sql/queries/prune_bodies.sql"),
            Self::Jobs => include_str!("../../sql/queries/prune_jobs.sql"),
            Self::Actions => include_str!("../../sql/queries/prune_actions.sql"),
        }
    }
}

/// So many rows of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([u64; Counts::NAMES.len()]);

impl Counts {
    /// What is counted: rows, and the bodies of results.
    pub const NAMES: [&'static str; 7] = [
        "calls",
        "attempts",
        "batches",
        "results",
        "result_bodies",
        "jobs",
        "operator_actions",
    ];

    /// Each with its name.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Self::NAMES.into_iter().zip(self.0)
    }

    /// Nothing is counted.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// These, too.
    pub fn add(&mut self, others: &Self) {
        for (sum, more) in self.0.iter_mut().zip(others.0) {
            *sum += more;
        }
    }

    fn read(operation: &'static str, row: &Row) -> Result<Self, StoreError> {
        let mut counts = Self::default();
        for (count, name) in counts.0.iter_mut().zip(Self::NAMES) {
            if row.columns().iter().any(|column| column.name() == name) {
                *count = column::<i64>(operation, row, name)?.unsigned_abs();
            }
        }
        Ok(counts)
    }
}

/// Where a statement begins: behind this row. Of batches the microsecond of the epoch in which it was created, and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor(i64, Uuid);

/// Before every row.
const START: Cursor = Cursor(0, Uuid::nil());

/// Where the rows begin that an earlier sweep has kept.
///
/// What lies before them need not be stepped over again: it is gone, and the entries that it left in the index can be many,
/// for as long as an old snapshot holds them there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begins([Cursor; Kind::ALL.len()]);

impl Default for Begins {
    fn default() -> Self {
        Self([START; Kind::ALL.len()])
    }
}

/// What one step of a sweep came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So much was pruned (or would be), and there may be more to look at.
    Went(Counts),
    /// Somebody else prunes at this moment.
    Busy,
    /// It is through.
    Over,
}

/// Once through all rows that may be old enough to go.
#[derive(Debug)]
pub struct Sweep {
    retention: Retention,
    /// Else it counts alone.
    prune: bool,
    /// The statement that is next, as an index of [`Kind::ALL`].
    kind: usize,
    /// Where that one goes on; `None` at its beginning.
    cursor: Option<Cursor>,
    look: i32,
    begins: Begins,
    kept: [Option<Cursor>; Kind::ALL.len()],
}

impl Sweep {
    /// One that prunes what is older than this.
    #[must_use]
    pub fn pruning(retention: Retention, begins: Begins) -> Self {
        Self {
            retention,
            prune: true,
            kind: 0,
            cursor: None,
            look: FIRST,
            begins,
            kept: [None; Kind::ALL.len()],
        }
    }

    /// One that counts what would be pruned.
    #[must_use]
    pub fn counting(retention: Retention) -> Self {
        Self {
            prune: false,
            ..Self::pruning(retention, Begins::default())
        }
    }

    /// How long rows are kept.
    #[must_use]
    pub fn retention(&self) -> &Retention {
        &self.retention
    }

    /// Where the next one may begin, once this one is through.
    #[must_use]
    pub fn begins(&self) -> Begins {
        let mut begins = self.begins.clone();
        for (begin, kept) in begins.0.iter_mut().zip(self.kept) {
            *begin = kept.unwrap_or(*begin);
        }
        begins
    }

    /// Looks at the next rows, in one transaction.
    ///
    /// # Errors
    /// The database did not answer, or refuses. The next step tries the same place again, with fewer rows.
    pub async fn step(&mut self, store: &Store) -> Result<Step, StoreError> {
        let Some((kind, age)) = self.current() else {
            return Ok(Step::Over);
        };
        let from = self.cursor.unwrap_or(self.begins.0[self.kind]);
        let begun = Instant::now();
        let row = match self.run(store, kind, age, from).await {
            Ok(row) => row,
            Err(error) => {
                self.look = (self.look / 4).max(LEAST);
                return Err(error);
            }
        };
        let operation = kind.operation();
        if !column::<bool>(operation, &row, "mine")? {
            return Ok(Step::Busy);
        }
        let last = column::<Option<i64>>(operation, &row, "last")?;
        let last = match (last, kind) {
            (Some(last), Kind::Batches) => Some(Cursor(last, column(operation, &row, "last_id")?)),
            (last, _) => last.map(|last| Cursor(last, Uuid::nil())),
        };
        if self.kept[self.kind].is_none() {
            // The next sweep begins with that row, so behind a place that is before it.
            let kept = column::<Option<i64>>(operation, &row, "kept")?;
            self.kept[self.kind] = kept.map(|kept| Cursor(kept - 1, Uuid::nil()));
        }
        if column::<Option<bool>>(operation, &row, "more")? == Some(true) {
            self.cursor = Some(last.unwrap_or(from));
        } else {
            if self.kept[self.kind].is_none() {
                self.kept[self.kind] = last;
            }
            self.kind += 1;
            self.cursor = None;
        }
        let took = begun.elapsed();
        if took > LONG {
            self.look = (self.look / 2).max(LEAST);
        } else if took < SHORT {
            self.look = (self.look * 2).min(MOST);
        }
        Ok(Step::Went(Counts::read(operation, &row)?))
    }

    /// The next statement that has something to do, and what is old for it.
    fn current(&mut self) -> Option<(Kind, Duration)> {
        while let Some(kind) = Kind::ALL.get(self.kind) {
            if let Some(age) = kind.age(&self.retention) {
                return Some((*kind, age));
            }
            self.kind += 1;
        }
        None
    }

    async fn run(
        &self,
        store: &Store,
        kind: Kind,
        age: Duration,
        Cursor(behind, id): Cursor,
    ) -> Result<Row, StoreError> {
        // To count, a batch is looked at once, and as a whole.
        let of_a_batch = if self.prune { OF_A_BATCH } else { i32::MAX };
        let age = age.as_secs_f64();
        let mut params: Vec<Param<'_>> = vec![
            (&self.prune, Type::BOOL),
            (&age, Type::FLOAT8),
            (&behind, Type::INT8),
        ];
        if kind == Kind::Batches {
            params.push((&id, Type::UUID));
        }
        params.push((&self.look, Type::INT4));
        if kind == Kind::Batches {
            params.push((&of_a_batch, Type::INT4));
        }
        let operation = kind.operation();
        let rows = store
            .write(operation, LOCK_WAIT, kind.sql(), &params)
            .await?;
        let row = rows.into_iter().next();
        row.ok_or_else(|| StoreError::other(operation, "no row came back"))
    }
}

impl Store {
    /// Whether a call that is not there may have been pruned: itself, or a newer one, was.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn may_have_been_pruned(&self, call: CallId) -> Result<bool, StoreError> {
        const OPERATION: &str = "read what was pruned";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/pruned_to.sql"),
                &[(&call, Type::INT8)],
            )
            .await?;
        rows.first()
            .map_or(Ok(false), |row| column(OPERATION, row, "pruned"))
    }
}
