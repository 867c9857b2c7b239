//! What `check` asks of a database.

use super::column;
use crate::store::{Store, StoreError};

/// The oldest server that leafhopper works with, as `server_version_num` writes it.
pub const OLDEST_SERVER: i32 = 140_000;

/// What the server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `server_version_num`
    pub number: i32,
    /// `server_version`
    pub version: String,
    /// It replays another server's WAL.
    pub standby: bool,
    /// It refuses writes.
    pub read_only: bool,
    /// The role that is logged in.
    pub role: String,
    /// The version of TLS that it speaks with whoever is at the other end of this session, which may be a pooler; `None`
    /// is clear text.
    pub tls: Option<String>,
}

impl Store {
    /// What the server says of itself.
    ///
    /// # Errors
    /// The database did not answer.
    pub async fn server(&self) -> Result<Server, StoreError> {
        const OPERATION: &str = "ask the server what it is";
        let rows = self
            .query(
                OPERATION,
                include_str!("../../../sql/queries/server.sql"),
                &[],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::other(OPERATION, "no row came back"))?;
        Ok(Server {
            number: column(OPERATION, row, "number")?,
            version: column(OPERATION, row, "version")?,
            standby: column(OPERATION, row, "standby")?,
            read_only: column(OPERATION, row, "read_only")?,
            role: column(OPERATION, row, "role")?,
            tls: column(OPERATION, row, "tls")?,
        })
    }
}
