//! What the tables hold, read once however many ask at the same time, and seldom where it takes long.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use crate::store::{
    Store, StoreError,
    stats::{Count, Overview},
};

/// What was read is good for so many times as long as reading it took: all who ask together take at most a twentieth
/// of one connection's time, however large the backlog is.
const GOOD_FOR: u32 = 20;

/// But for no longer than this.
const AGE_MAX: Duration = Duration::from_secs(15);

/// What the tables hold.
#[derive(Debug)]
pub(super) struct Tables {
    /// Live calls by leaf, state and reason.
    pub(super) counts: Vec<Count>,
    /// Instances, pauses and batches.
    pub(super) overview: Overview,
}

/// The last look at them.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last: Mutex<Option<Look>>,
}

#[derive(Debug)]
struct Look {
    tables: Arc<Tables>,
    good_until: Instant,
}

impl Looks {
    /// Something was changed by hand: the next one looks anew.
    pub(super) async fn forget(&self) {
        *self.last.lock().await = None;
    }

    /// What the tables hold, or held a moment ago.
    ///
    /// # Errors
    /// The database did not answer.
    pub(super) async fn look(&self, store: &Store) -> Result<Arc<Tables>, StoreError> {
        let mut last = self.last.lock().await;
        if let Some(look) = last
            .as_ref()
            .filter(|look| Instant::now() < look.good_until)
        {
            return Ok(Arc::clone(&look.tables));
        }
        let began = Instant::now();
        let tables = Arc::new(Tables {
            counts: store.counts().await?,
            overview: store.overview().await?,
        });
        let took = began.elapsed();
        *last = Some(Look {
            tables: Arc::clone(&tables),
            good_until: began + took + (took * GOOD_FOR).min(AGE_MAX),
        });
        Ok(tables)
    }
}
