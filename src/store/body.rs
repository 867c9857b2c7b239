//! Bodies that are too large to be read with the claim.

use bytes::Bytes;
use tokio_postgres::types::Type;

use super::{Store, StoreError, column};
use crate::domain::call::CallId;

/// A body that takes more bytes than these as it is stored, or than eight times as many as it is sent (it may be stored
/// compressed), is not read with its call, but when there is room for it.
pub(super) const LARGE: i32 = 8192;

impl Store {
    /// How many bytes the call's body has. 0 where there is none.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn size_of_body(&self, call: CallId) -> Result<usize, StoreError> {
        const OPERATION: &str = "read the size of a body";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/size_of_body.sql"),
                &[(&call, Type::INT8)],
            )
            .await?;
        let size = match rows.first() {
            Some(row) => column::<Option<i64>>(OPERATION, row, "bytes")?,
            None => None,
        };
        Ok(size.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX)))
    }

    /// The call's body as it is sent; `None` where its row is gone.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn read_body(&self, call: CallId) -> Result<Option<Bytes>, StoreError> {
        const OPERATION: &str = "read a body";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/read_body.sql"),
                &[(&call, Type::INT8)],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let text: Option<&str> = column(OPERATION, row, "body")?;
        let raw: Option<&[u8]> = column(OPERATION, row, "body_raw")?;
        let bytes = text.map(str::as_bytes).or(raw);
        Ok(bytes.map(Bytes::copy_from_slice))
    }
}
