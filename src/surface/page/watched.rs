//! What the overview shows, read seldom where reading takes long.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::latency::Latencies;
use crate::{
    domain::call::CallId,
    store::{
        StoreError,
        operator::{
            CallRow,
            job::JobRow,
            leaves::LeafRow,
            watch::{Action, Failed, LastWords, StuckBatch},
        },
        stats::Count,
    },
    surface::{Surface, looks::Looks, tables::Tables},
};

/// Groups of stuck calls that are shown, those with the oldest calls first.
pub(super) const STUCK: usize = 8;

/// Stuck batches that are shown.
const BATCHES: i64 = 5;

/// Of the latest actions, so many are read; those that are alike are shown as one.
const ACTIONS: i64 = 200;

/// Of the latest jobs so many are shown.
const JOBS: usize = 5;

/// What was read is shown for this long, or for [`TIMES`] as long as reading it took.
const GOOD_FOR: Duration = Duration::from_secs(1);
const TIMES: u32 = 10;
const AGE_MAX: Duration = Duration::from_secs(15);

/// A database that does not answer within this time counts as down, for the page.
const PATIENCE: Duration = Duration::from_secs(4);

/// What was read.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) tables: Arc<Tables>,
    /// The calls that are shown as examples.
    pub(super) calls: BTreeMap<CallId, CallRow>,
    /// What the leaf said last to each of these.
    pub(super) words: BTreeMap<CallId, LastWords>,
    pub(super) batches: Vec<StuckBatch>,
    /// Each as a JSON object.
    pub(super) instances: Vec<String>,
    pub(super) leaves: Vec<LeafRow>,
    pub(super) per_minute: BTreeMap<String, f64>,
    pub(super) failed: Failed,
    pub(super) actions: Vec<Action>,
    /// The latest ones.
    pub(super) jobs: Vec<JobRow>,
    /// Sending is stopped for this reason.
    pub(super) change: Option<String>,
}

/// The last look, and what is needed for the next.
#[derive(Debug, Default)]
pub(super) struct Watched {
    looks: Looks<Result<Arc<Seen>, String>>,
    pub(super) latencies: Latencies,
}

impl Watched {
    /// What there is to see, or why the database does not say.
    pub(super) async fn look(&self, surface: &Surface) -> Result<Arc<Seen>, String> {
        let read = || {
            let surface = surface.clone();
            async move {
                match tokio::time::timeout(PATIENCE, read(&surface)).await {
                    Ok(Ok(seen)) => Ok(Arc::new(seen)),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_elapsed) => Err(format!("no reply within {} s", PATIENCE.as_secs())),
                }
            }
        };
        let seen = self
            .looks
            .look(&surface.tasks, |_seen, took| good_for(took), read);
        seen.await
            .unwrap_or_else(|| Err("the look at it panicked".to_owned()))
    }

    /// Something was changed by hand: the next one looks anew.
    pub(super) fn forget(&self) {
        self.looks.forget();
    }
}

fn good_for(took: Duration) -> Duration {
    (took * TIMES).clamp(GOOD_FOR, AGE_MAX)
}

/// The groups of stuck calls, those with the oldest calls first.
pub(super) fn stuck(counts: &[Count]) -> Vec<&Count> {
    let mut stuck: Vec<&Count> = counts
        .iter()
        .filter(|count| count.stuck > 0 && count.first_stuck.is_some())
        .collect();
    stuck.sort_by_key(|count| count.first_stuck);
    stuck
}

async fn read(surface: &Surface) -> Result<Seen, Arc<StoreError>> {
    let store = surface.people();
    let tables = surface.tables().await?;
    let batches = store.stuck_batches(BATCHES).await?;
    let shown = stuck(&tables.counts).into_iter().take(STUCK);
    let mut ids: Vec<CallId> = shown.filter_map(|count| count.first_stuck).collect();
    ids.extend(batches.iter().filter_map(|batch| batch.call));
    let calls = store.calls_by_id(&ids).await?;
    let change = if surface.context.may_go_on() {
        None
    } else {
        let origin = store.origin().await?;
        origin.changed()
    };
    Ok(Seen {
        calls: calls.into_iter().map(|call| (call.id, call)).collect(),
        words: store.last_words(&ids).await?,
        batches,
        instances: store.instance_rows().await?,
        leaves: store.leaves().await?,
        per_minute: store.confirmed_per_minute().await?,
        failed: store.failed_lately().await?,
        actions: store.recent_actions(ACTIONS).await?,
        jobs: store.jobs(None, JOBS).await?,
        change,
        tables,
    })
}
