//! Least privilege: what each kind of role may do, and no more. `tests/it/roles` holds the lists to the statements.

use tokio_postgres::types::Type;

use super::{
    Store, StoreError, column,
    connect::Connect,
    migrate::{MigrateError, open, run},
};

/// Who is granted something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// What `leafhopper run` logs in as. It does what people ask for over HTTP, too.
    Sidecar,
    /// People who act by the commands.
    Operator,
    /// People and programs that look by the commands.
    ReadOnly,
}

/// What a role may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Tables, views and sequences of the schema, each with what GRANT grants on it.
    pub tables: &'static [(&'static str, &'static str)],
    /// Functions of the schema.
    pub functions: &'static [&'static str],
}

impl Kind {
    /// What it needs.
    #[must_use]
    pub const fn rights(self) -> Rights {
        match self {
            Self::Sidecar => SIDECAR,
            Self::Operator => OPERATOR,
            Self::ReadOnly => READ_ONLY,
        }
    }
}

const SIDECAR: Rights = Rights {
    tables: &[
        ("attempt", "SELECT, INSERT, DELETE"),
        ("batch", "SELECT, INSERT, UPDATE, DELETE"),
        ("batch_mark", "SELECT, INSERT, DELETE"),
        ("call", "SELECT"),
        ("dispatch", "SELECT, INSERT, UPDATE, DELETE"),
        ("effect", "SELECT"),
        ("finished", "SELECT, INSERT, UPDATE (fails_batch), DELETE"),
        ("instance", "SELECT, INSERT, UPDATE, DELETE"),
        ("job", "SELECT, INSERT, UPDATE, DELETE"),
        ("leaf_control", "SELECT, INSERT, UPDATE"),
        ("operator_action", "SELECT, DELETE"),
        ("order_hold", "SELECT, INSERT, DELETE"),
        ("origin", "SELECT, INSERT, UPDATE"),
        (
            "outbox",
            "SELECT, INSERT, UPDATE (method, path, body), DELETE",
        ),
        (
            "result",
            "SELECT, INSERT, UPDATE (attempts, body, body_raw, truncated), DELETE",
        ),
        ("schema_version", "SELECT"),
        ("setting", "SELECT, INSERT, UPDATE"),
        ("sleeping_until", "SELECT, UPDATE"),
    ],
    functions: &[
        "batch_is_open",
        "batch_reason",
        "batch_waits_since",
        "can_be_asked_first",
        "cancel",
        "cancel_batch",
        "failure_cancels",
        "is_consistent",
        "is_told",
        "may_run_again",
        "note",
        "resolve_not_executed",
        "retry",
        "standing",
        "take_word",
        "waive",
        "wake",
    ],
};

const OPERATOR: Rights = Rights {
    tables: &[
        ("attempt", "SELECT"),
        ("batch", "SELECT"),
        ("call", "SELECT"),
        (
            "dispatch",
            "SELECT, UPDATE (state, due_at, probes, alive_until, in_doubt_since, resend, exists_said, suspect)",
        ),
        ("effect", "SELECT"),
        ("finished", "SELECT, UPDATE (last_error)"),
        ("instance", "SELECT"),
        ("leaf_control", "SELECT, INSERT, UPDATE"),
        ("operator_action", "SELECT"),
        ("order_hold", "SELECT, DELETE"),
        ("origin", "SELECT, UPDATE"),
        ("outbox", "SELECT"),
        ("result", "SELECT"),
        ("setting", "SELECT, INSERT, UPDATE"),
    ],
    functions: &[
        "batch_is_open",
        "batch_reason",
        "batch_waits_since",
        "cancel",
        "cancel_batch",
        "is_consistent",
        "may_run_again",
        "note",
        "resolve_not_executed",
        "retry",
        "take_word",
        "waive",
        "wake",
    ],
};

const READ_ONLY: Rights = Rights {
    tables: &[
        ("attempt", "SELECT"),
        ("batch", "SELECT"),
        ("call", "SELECT"),
        ("dispatch", "SELECT"),
        ("effect", "SELECT"),
        ("finished", "SELECT"),
        ("instance", "SELECT"),
        ("leaf_control", "SELECT"),
        ("operator_action", "SELECT"),
        ("order_hold", "SELECT"),
        ("origin", "SELECT"),
        ("outbox", "SELECT"),
        ("result", "SELECT"),
        ("setting", "SELECT"),
    ],
    functions: &[
        "batch_is_open",
        "batch_reason",
        "batch_waits_since",
        "may_run_again",
    ],
};

/// The functions of the contract that an app's role can be granted.
pub const GRANTABLE: &[&str] = &[
    "confirm",
    "forget",
    "cancel",
    "resolve_not_executed",
    "retry",
    "cancel_batch",
    "seal",
    "waive",
];

/// Grants to `role` exactly what an app needs, and the named functions.
///
/// # Errors
/// There is no such role or function, or a statement failed; then nothing was granted.
pub async fn grant_app(
    connect: &Connect,
    role: &str,
    functions: &[String],
) -> Result<Vec<String>, MigrateError> {
    if let Some(unknown) = functions
        .iter()
        .find(|name| !GRANTABLE.contains(&name.as_str()))
    {
        return Err(MigrateError::NoFunction(unknown.clone()));
    }
    let params: [super::Param<'_>; 2] = [(&role, Type::TEXT), (&functions, Type::TEXT_ARRAY)];
    let sql = include_str!("../../sql/queries/grants.sql");
    grant_listed(connect, role, sql, &params).await
}

/// Grants to `role` exactly what a role of this kind needs.
///
/// # Errors
/// There is no such role, or a statement failed; then nothing was granted.
pub async fn grant(connect: &Connect, kind: Kind, role: &str) -> Result<Vec<String>, MigrateError> {
    let Rights { tables, functions } = kind.rights();
    let (names, granted): (Vec<&str>, Vec<&str>) = tables.iter().copied().unzip();
    let params: [super::Param<'_>; 4] = [
        (&role, Type::TEXT),
        (&names, Type::TEXT_ARRAY),
        (&granted, Type::TEXT_ARRAY),
        (&functions, Type::TEXT_ARRAY),
    ];
    let sql = include_str!("../../sql/queries/grant_rights.sql");
    grant_listed(connect, role, sql, &params).await
}

/// Runs the GRANT statements that `sql` gives.
async fn grant_listed(
    connect: &Connect,
    role: &str,
    sql: &str,
    params: &[super::Param<'_>],
) -> Result<Vec<String>, MigrateError> {
    const OPERATION: &str = "list the grants";
    let client = open(connect).await?;
    let rows = client
        .query_typed(sql, params)
        .await
        .map_err(|error| StoreError::statement(OPERATION, error))?;
    if rows.is_empty() {
        return Err(MigrateError::NoRole(role.to_owned()));
    }
    let grants: Vec<String> = rows
        .iter()
        .map(|row| column(OPERATION, row, "statement"))
        .collect::<Result<_, _>>()?;
    // Several statements in one message are one transaction (PostgreSQL, chapter 55.2.2.1).
    run(&client, "grant", &grants.join("; ")).await?;
    Ok(grants)
}

impl Store {
    /// The rights that the role lacks for what a sidecar does, as a GRANT would name them.
    ///
    /// # Errors
    /// The database did not answer, or the schema is not there.
    pub async fn missing_rights(&self) -> Result<Vec<String>, StoreError> {
        const OPERATION: &str = "look at the role's rights";
        let Rights { tables, functions } = Kind::Sidecar.rights();
        let (names, granted): (Vec<&str>, Vec<&str>) = tables.iter().copied().unzip();
        let rows = self
            .query(
                OPERATION,
                include_str!("../../sql/queries/rights.sql"),
                &[
                    (&names, Type::TEXT_ARRAY),
                    (&granted, Type::TEXT_ARRAY),
                    (&functions, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| column(OPERATION, row, "missing"))
            .collect()
    }
}
