//! Ordering keys and effect keys: which waiting call may go next.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Store, StoreError, column, sweep::CHUNK};

const LOCK_WAIT: Duration = Duration::from_millis(100);

/// A leaf and an ordering key.
pub type OrderingKey = (String, String);

impl Store {
    /// Looks at calls with an ordering key that have just arrived. Gives how many were looked at, and how
    /// many of them may be sent.
    ///
    /// # Errors
    /// The database did not answer, or another promoter was in the way: the next pass does it.
    pub async fn promote_arrived(&self) -> Result<(usize, usize), StoreError> {
        const OPERATION: &str = "look at arrived ordered calls";
        let rows = self
            .write(
                OPERATION,
                LOCK_WAIT,
                include_str!("../../sql/queries/promote_arrived.sql"),
                &[(&CHUNK, Type::INT4)],
            )
            .await?;
        let mut heads = 0;
        for row in &rows {
            heads += usize::from(column::<bool>(OPERATION, row, "head")?);
        }
        Ok((rows.len(), heads))
    }

    /// Lets the next call of each key go, where nothing else of it is under way. Gives how many went.
    ///
    /// # Errors
    /// As [`Store::promote_arrived`].
    pub async fn promote_next(&self, keys: &[OrderingKey]) -> Result<usize, StoreError> {
        let leaves: Vec<&str> = keys.iter().map(|(leaf, _)| leaf.as_str()).collect();
        let names: Vec<&str> = keys.iter().map(|(_, key)| key.as_str()).collect();
        let rows = self
            .write(
                "let the next ordered calls go",
                LOCK_WAIT,
                include_str!("../../sql/queries/promote_next.sql"),
                &[(&leaves, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY)],
            )
            .await?;
        Ok(rows.len())
    }

    /// Ordering keys with waiting calls and no head.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn headless_keys(&self) -> Result<Vec<OrderingKey>, StoreError> {
        const OPERATION: &str = "find ordering keys without a head";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/waiting_keys.sql"),
                &[(&CHUNK, Type::INT4)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok((
                    column(OPERATION, row, "leaf")?,
                    column(OPERATION, row, "ordering_key")?,
                ))
            })
            .collect()
    }

    /// Frees calls that wait for an effect key which nobody holds. Gives how many.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn free_keys(&self) -> Result<usize, StoreError> {
        let rows = self
            .write(
                "free calls that wait for a key",
                LOCK_WAIT,
                include_str!("../../sql/queries/free_keys.sql"),
                &[(&CHUNK, Type::INT4)],
            )
            .await?;
        Ok(rows.len())
    }
}
