//! What is granted, beside what the statements of `sql/queries` need: PostgreSQL itself says, of each statement and of each
//! right that is taken away.

use std::collections::BTreeSet;

use leafhopper::store::roles::{Kind, Rights};
use tokio_postgres::{Client, error::SqlState};

use super::Login;
use crate::{
    harness::{Bed, app::keyed},
    queries::{parameters_of, queries},
};

/// Of whoever migrates and grants.
const OWNERS: &[&str] = &["grants.sql", "grant_rights.sql"];

/// What people look at by the commands.
const READING: &[&str] = &[
    "batch_rows.sql",
    "batches_like.sql",
    "failed_lately.sql",
    "last_words.sql",
    "list_all.sql",
    "list_batches.sql",
    "list_heads.sql",
    "list_leaves.sql",
    "list_named.sql",
    "list_rows.sql",
    "list_tracked.sql",
    "pruned_to.sql",
    "recent_actions.sql",
    "recent_results.sql",
    "search_calls.sql",
    "show_batch.sql",
    "show_call.sql",
    "show_claim.sql",
    "show_instances.sql",
    "stats.sql",
    "stats_instances.sql",
    "stuck_batches.sql",
];

/// What people do by the commands, beside looking.
const ACTING: &[&str] = &[
    "act_cancel.sql",
    "act_cancel_batch.sql",
    "act_cancel_marked.sql",
    "act_confirm.sql",
    "act_lock.sql",
    "act_not_executed.sql",
    "act_note.sql",
    "act_pause.sql",
    "act_release.sql",
    "act_resume.sql",
    "act_retry.sql",
    "act_waive.sql",
    "go_on.sql",
    "identity.sql",
];

/// Whether a role of this kind runs this statement. The sidecar does all that people ask for over HTTP, too.
fn runs(kind: Kind, name: &str) -> bool {
    match kind {
        Kind::Sidecar => !OWNERS.contains(&name),
        Kind::Operator => READING.contains(&name) || ACTING.contains(&name),
        _ => READING.contains(&name),
    }
}

/// A statement by which a right is tried: it comes to its end, or is refused.
struct Trial {
    name: String,
    /// What is run.
    sql: String,
    /// Where a right that it needs is likely to be named.
    text: String,
}

/// Every statement of a role of this kind, explained: so PostgreSQL checks all rights but those that a constraint or a
/// function's body asks for, or that a function of the server's asks for when it runs. Then these.
async fn trials(kind: Kind, client: &Client) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, sql) in queries("sql/queries") {
        if !runs(kind, &name) {
            continue;
        }
        let types = parameters_of(&sql);
        let (listed, nulls) = if types.is_empty() {
            (String::new(), String::new())
        } else {
            let nulls = vec!["NULL"; types.len()].join(", ");
            (format!("({})", types.join(", ")), format!("({nulls})"))
        };
        let statement = name.trim_end_matches(".sql");
        let prepare = format!("PREPARE {statement}{listed} AS {sql}\n");
        client.batch_execute(&prepare).await.unwrap();
        trials.push(Trial {
            sql: format!("EXPLAIN EXECUTE {statement}{nulls}"),
            name,
            text: sql,
        });
    }
    let functions = "SELECT format('SELECT %s(%s)', p.oid::regproc, \
                        (SELECT string_agg('NULL::' || t.type::regtype, ', ') FROM unnest(p.proargtypes) AS t (type))) AS sql \
                       FROM pg_proc p \
                      WHERE p.pronamespace = 'leafhopper'::regnamespace AND NOT p.prosecdef \
                        AND p.prolang = (SELECT l.oid FROM pg_language l WHERE l.lanname = 'sql') AND p.proname = ANY ($1)";
    let callable = kind.rights().functions;
    for row in client.query(functions, &[&callable]).await.unwrap() {
        let sql: String = row.get("sql");
        trials.push(Trial {
            name: format!("the body of {sql}"),
            text: sql.clone(),
            sql,
        });
    }
    if kind != Kind::ReadOnly {
        trials.push(Trial {
            name: "the constraint of dispatch".to_owned(),
            sql: "UPDATE leafhopper.dispatch SET state = 'pending'".to_owned(),
            text: "is_consistent sleeping_until".to_owned(),
        });
    }
    if kind == Kind::Sidecar {
        trials.push(Trial {
            name: "announce_awake.sql, run".to_owned(),
            sql: "SELECT setval('leafhopper.sleeping_until', 1)".to_owned(),
            text: "is_consistent sleeping_until".to_owned(),
        });
    }
    trials
}

/// Single rights of a list such as `SELECT, UPDATE (path, body)`, as REVOKE names them.
fn singles(granted: &str) -> Vec<String> {
    let mut singles = Vec::new();
    let mut rest = granted;
    while !rest.is_empty() {
        let end = match (rest.find('('), rest.find(',')) {
            (Some(open), Some(comma)) if open < comma => rest.find(')').unwrap() + 1,
            (Some(_), None) => rest.len(),
            (_, comma) => comma.unwrap_or(rest.len()),
        };
        let (one, more) = rest.split_at(end);
        match one.trim_end_matches(')').split_once(" (") {
            Some((privilege, columns)) => singles.extend(
                columns
                    .split(", ")
                    .map(|column| format!("{privilege} ({column})")),
            ),
            None => singles.push(one.to_owned()),
        }
        rest = more.trim_start_matches(", ");
    }
    singles
}

/// Every right of this kind: `SELECT ON leafhopper.outbox`.
async fn rights(kind: Kind, client: &Client) -> Vec<(String, String)> {
    let mut rights = Vec::new();
    for (name, granted) in kind.rights().tables {
        let relation =
            format!("SELECT relkind = 'S' FROM pg_class WHERE oid = 'leafhopper.{name}'::regclass");
        let sequence: bool = client.query_one(&relation, &[]).await.unwrap().get(0);
        let word = if sequence { "SEQUENCE " } else { "" };
        for single in singles(granted) {
            rights.push((
                format!("{single} ON {word}leafhopper.{name}"),
                (*name).to_owned(),
            ));
        }
    }
    for name in kind.rights().functions {
        let found = "SELECT p.oid::regprocedure::text FROM pg_proc p \
                      WHERE p.pronamespace = 'leafhopper'::regnamespace AND p.proname = $1";
        let row = client.query_opt(found, &[name]).await.unwrap();
        let row = row.unwrap_or_else(|| panic!("there is no function {name}"));
        let signature: String = row.get(0);
        rights.push((
            format!("EXECUTE ON FUNCTION {signature}"),
            (*name).to_owned(),
        ));
    }
    rights
}

/// Whether the role may do it. Any other error than a refusal is a fault of the test.
async fn is_allowed(client: &Client, trial: &Trial) -> bool {
    match client.batch_execute(&trial.sql).await {
        Ok(()) => true,
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => false,
        Err(error) => panic!("{}: {error:?}", trial.name),
    }
}

async fn is_exact(kind: Kind) {
    let bed = Bed::new().await;
    let login = Login::new(&bed, kind).await;
    bed.app.insert(keyed("leaf", "k")).await;
    let client = bed.database.connect().await;
    let role = &login.name;
    client
        .batch_execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let trials = trials(kind, &client).await;
    let mut faults = Vec::new();
    for trial in &trials {
        let begin = format!("BEGIN; SET LOCAL ROLE \"{role}\"");
        client.batch_execute(&begin).await.unwrap();
        if let Err(error) = client.batch_execute(&trial.sql).await {
            faults.push(format!("{}: {error:?}", trial.name));
        }
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    for (right, object) in rights(kind, &client).await {
        let begin = format!("BEGIN; REVOKE {right} FROM \"{role}\"; SET LOCAL ROLE \"{role}\"");
        client.batch_execute(&begin).await.unwrap();
        // Those first that may well need it.
        let (named, others): (Vec<_>, Vec<_>) = trials
            .iter()
            .partition(|trial| trial.text.contains(&object));
        let mut needed = false;
        for trial in named.into_iter().chain(others) {
            if !is_allowed(&client, trial).await {
                needed = true;
                break;
            }
        }
        client.batch_execute("ROLLBACK").await.unwrap();
        if !needed {
            faults.push(format!("{right} is needed by nothing"));
        }
    }
    assert!(faults.is_empty(), "{kind:?}:\n{}", faults.join("\n"));
    has_nothing_else(&bed, &login, kind).await;
    login.drop().await;
}

/// What the catalogue says that the role was granted is what is on the list, and nothing else of the database is its.
async fn has_nothing_else(bed: &Bed, login: &Login<'_>, kind: Kind) {
    let client = bed.app.client();
    let role = &login.name;
    let in_catalogue = format!(
        "WITH granted AS ( \
           SELECT c.relname::text AS object, a.privilege_type AS privilege, NULL AS col, c.relacl IS NULL AS open \
             FROM pg_class c, aclexplode(c.relacl) a WHERE a.grantee = '{quoted}'::regrole AND NOT a.is_grantable \
           UNION ALL \
           SELECT c.relname, a.privilege_type, t.attname, false \
             FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid, aclexplode(t.attacl) a WHERE a.grantee = '{quoted}'::regrole \
           UNION ALL \
           SELECT p.proname, a.privilege_type, NULL, false \
             FROM pg_proc p, aclexplode(p.proacl) a WHERE a.grantee = '{quoted}'::regrole \
           UNION ALL \
           SELECT 'schema ' || n.nspname, a.privilege_type, NULL, false \
             FROM pg_namespace n, aclexplode(n.nspacl) a WHERE a.grantee = '{quoted}'::regrole \
         ) SELECT object || ': ' || privilege || coalesce(' (' || col || ')', '') AS told FROM granted",
        quoted = format!("\"{role}\"")
    );
    let told: BTreeSet<String> = client
        .query(&in_catalogue, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get("told"))
        .collect();
    let Rights { tables, functions } = kind.rights();
    let listed: BTreeSet<String> = tables
        .iter()
        .flat_map(|(name, granted)| {
            singles(granted)
                .into_iter()
                .map(move |one| format!("{name}: {one}"))
        })
        .chain(functions.iter().map(|name| format!("{name}: EXECUTE")))
        .chain(["schema leafhopper: USAGE".to_owned()])
        .collect();
    assert_eq!(told, listed);

    // A table of the app's own, and what a login could still be or do.
    bed.app
        .execute("CREATE TABLE public.shop_order (id int)")
        .await;
    let app = login.connect().await;
    for sql in [
        "SELECT FROM public.shop_order",
        "INSERT INTO public.shop_order VALUES (1)",
        "CREATE TABLE leafhopper.mine ()",
        "CREATE FUNCTION leafhopper.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA mine",
        "ALTER TABLE leafhopper.outbox DISABLE TRIGGER ALL",
        "TRUNCATE leafhopper.result",
        "UPDATE leafhopper.result SET status = 500",
        "UPDATE leafhopper.outbox SET leaf = 'elsewhere'",
        "INSERT INTO leafhopper.operator_action (actor, action, reason) VALUES ('a', 'b', 'c')",
        "INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (99, 'x', 99)",
        "SELECT leafhopper.forget('leaf', 'k')",
        "SELECT leafhopper.end_call(1, 'failed', 'rejected')",
        "SET session_replication_role = replica",
    ] {
        let refused = app.client().batch_execute(sql).await;
        let code = refused.as_ref().err().and_then(tokio_postgres::Error::code);
        assert_eq!(
            code,
            Some(&SqlState::INSUFFICIENT_PRIVILEGE),
            "{kind:?}: {sql}: {refused:?}"
        );
    }
    let more = "SELECT 1 FROM pg_roles r WHERE r.rolname = current_user AND NOT (r.rolsuper OR r.rolcreaterole OR r.rolcreatedb \
                   OR r.rolreplication OR r.rolbypassrls) AND NOT EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid)";
    assert_eq!(app.rows(more).await.len(), 1);
}

#[tokio::test]
async fn a_sidecar_s_rights_are_those_that_its_statements_need() {
    is_exact(Kind::Sidecar).await;
}

#[tokio::test]
async fn an_operator_s_rights_are_those_that_the_commands_need() {
    is_exact(Kind::Operator).await;
}

#[tokio::test]
async fn a_reader_s_rights_are_those_that_the_lists_need() {
    is_exact(Kind::ReadOnly).await;
}

#[test]
fn a_list_of_rights_is_taken_apart() {
    assert_eq!(
        singles("SELECT, UPDATE (path, body), DELETE"),
        ["SELECT", "UPDATE (path)", "UPDATE (body)", "DELETE"]
    );
    assert_eq!(singles("SELECT"), ["SELECT"]);
    assert_eq!(singles("UPDATE (a)"), ["UPDATE (a)"]);
}
