//! What the tables hold, read seldom where it takes long.

use std::{sync::Arc, time::Duration};

use crate::store::{
    Store, StoreError,
    stats::{Count, Overview},
};

/// What was read is good for so many times as long as reading it took: all who ask together take at most a twentieth
/// of one connection's time, however large the backlog is.
const GOOD_FOR: u32 = 20;

/// But for no longer than this.
const AGE_MAX: Duration = Duration::from_secs(15);

/// That the database did not answer is good for so long: who asks again and again does not have it asked each time.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// What the tables hold.
#[derive(Debug)]
pub(super) struct Tables {
    /// Live calls by leaf, state and reason.
    pub(super) counts: Vec<Count>,
    /// Instances, pauses and batches.
    pub(super) overview: Overview,
}

/// What a look at them comes to.
pub(super) type Seen = Result<Arc<Tables>, Arc<StoreError>>;

impl Tables {
    /// Reads them.
    ///
    /// # Errors
    /// The database did not answer.
    pub(super) async fn read(store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            counts: store.counts().await?,
            overview: store.overview().await?,
        })
    }
}

/// For how long it is good.
pub(super) fn good_for(seen: &Seen, took: Duration) -> Duration {
    match seen {
        Ok(_) => (took * GOOD_FOR).min(AGE_MAX),
        Err(_) => FAILED_FOR,
    }
}
