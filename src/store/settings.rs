//! What sessions and transactions are set to.

use std::time::Duration;

/// A statement that takes longer than this is given up; none of them should take a tenth of it.
const STATEMENT_LIMIT: Duration = Duration::from_secs(20);

/// Between two statements of a transaction lies a reply and no more: a session that is silent there for so long is
/// given up by the server, which else would keep what it has locked for as long as the connection stays open.
const PAUSE_LIMIT: Duration = Duration::from_secs(5);

/// What holds for all that is said to the database, whatever its and the role's defaults are.
///
/// Confirmations rest on `synchronous_commit`. Without JIT: where the planner's numbers are old, compiling a statement
/// takes longer than running it.
fn for_all() -> [(&'static str, String); 4] {
    [
        ("synchronous_commit", "on".to_owned()),
        ("jit", "off".to_owned()),
        ("statement_timeout", STATEMENT_LIMIT.as_millis().to_string()),
        (
            "idle_in_transaction_session_timeout",
            PAUSE_LIMIT.as_millis().to_string(),
        ),
    ]
}

/// A statement that is alone waits for others' locks as long as it may take.
fn patient() -> (&'static str, String) {
    ("lock_timeout", "0".to_owned())
}

/// What each session of the pool has, where it is given settings as it begins (PostgreSQL, chapter 20.1.3).
pub(super) fn of_session() -> String {
    let mut options = String::from("-c default_transaction_isolation=read\\ committed");
    for (name, value) in for_all().into_iter().chain([patient()]) {
        options += &format!(" -c {name}={value}");
    }
    options
}

/// How the transaction of a single statement begins, where the session has no settings.
pub(super) fn begin_alone() -> String {
    let mut settings = for_all().to_vec();
    settings.push(patient());
    begin_with(&settings)
}

/// How a transaction begins that writes. `has_settings`: the session has those of [`of_session`].
///
/// A plan that is kept must not rest on what its tables held when it was made: so no parameter's value, and no table
/// that was small (PostgreSQL, chapters 20.7.1 and 20.7.4).
pub(super) fn begin(lock_wait: Duration, preparing: bool, has_settings: bool) -> String {
    let mut settings = vec![("lock_timeout", lock_wait.as_millis().to_string())];
    if preparing {
        settings.push(("plan_cache_mode", "force_generic_plan".to_owned()));
        settings.push(("enable_seqscan", "off".to_owned()));
    }
    if has_settings {
        // Said each time, whoever's session it turns out to be.
        settings.push(("synchronous_commit", "on".to_owned()));
    } else {
        settings.extend(for_all());
    }
    begin_with(&settings)
}

/// `BEGIN`, and one statement for all settings of this transaction (PostgreSQL, chapter 9.28.1).
fn begin_with(settings: &[(&str, String)]) -> String {
    let set = |(name, value): &(&str, String)| format!("set_config('{name}', '{value}', true)");
    let all: Vec<String> = settings.iter().map(set).collect();
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {}",
        all.join(", ")
    )
}
