//! What an app's role may do: exactly what the contract names.

use tokio_postgres::error::SqlState;

use crate::harness::{
    Bed,
    app::{App, keyed},
};

/// A role that lives as long as its database; it belongs to the whole server.
struct Role<'a> {
    bed: &'a Bed,
    name: String,
    app: App,
}

impl<'a> Role<'a> {
    /// With what `migrate --grant-app` grants, and these functions.
    async fn new(bed: &'a Bed, functions: &[&str]) -> Self {
        let name = format!("app of {}", bed.database.name);
        let name: String = name.chars().take(63).collect();
        bed.app
            .execute(&format!(
                "DROP ROLE IF EXISTS \"{name}\"; CREATE ROLE \"{name}\""
            ))
            .await;
        let grants = include_str!("../../sql/queries/grants.sql");
        let grants = bed
            .app
            .client()
            .query(grants, &[&name, &functions])
            .await
            .unwrap();
        for grant in &grants {
            bed.app.execute(grant.get("statement")).await;
        }
        let app = App::connect(&bed.database.url).await;
        app.execute(&format!("SET ROLE \"{name}\"")).await;
        Self { bed, name, app }
    }

    async fn refused(&self, sql: &str) {
        let refused = self.app.client().batch_execute(sql).await;
        let code = refused.as_ref().err().and_then(|error| error.code());
        assert_eq!(
            code,
            Some(&SqlState::INSUFFICIENT_PRIVILEGE),
            "{sql}: {refused:?}"
        );
    }

    async fn drop(self) {
        let name = &self.name;
        self.bed
            .app
            .execute(&format!("DROP OWNED BY \"{name}\"; DROP ROLE \"{name}\""))
            .await;
    }
}

#[tokio::test]
async fn an_app_s_role_inserts_and_reads_what_it_is_for() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let role = Role::new(&bed, &["confirm"]).await;
    let batch = "INSERT INTO leafhopper.batch (id, name, allow_failures, sealed, undo_order) \
                 VALUES ('00000000-0000-0000-0000-000000000001', 'b', true, false, 'any')";
    role.app.execute(batch).await;
    let id = role.app.insert(keyed("leaf", "k").set("priority", 1)).await;
    role.app.until_state(id, "confirmed").await;
    assert_eq!(role.app.results("leaf", "k").await.len(), 1);
    role.app
        .execute("SELECT * FROM leafhopper.outbox; SELECT * FROM leafhopper.batch")
        .await;
    role.app
        .execute("SELECT leafhopper.confirm('leaf', 'l', 200)")
        .await;
    role.drop().await;
}

#[tokio::test]
async fn an_app_s_role_may_do_what_the_readme_shows() {
    let bed = Bed::new().await;
    let role = Role::new(&bed, &["confirm", "forget", "seal"]).await;
    let readme = include_str!("../../README.md");
    let examples = readme.split("```sql\n").skip(1);
    let examples: Vec<&str> = examples
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        role.app.execute(example).await;
    }
    role.drop().await;
}

#[tokio::test]
async fn an_app_s_role_may_do_nothing_else() {
    let bed = Bed::new().await;
    let role = Role::new(&bed, &["confirm"]).await;
    role.app.insert(keyed("leaf", "k")).await;
    for sql in [
        "UPDATE leafhopper.outbox SET path = '/x'",
        "DELETE FROM leafhopper.outbox",
        "TRUNCATE leafhopper.outbox",
        "SELECT * FROM leafhopper.outbox FOR UPDATE",
        "DO $$ BEGIN LOCK TABLE leafhopper.outbox IN SHARE MODE; END $$",
        "INSERT INTO leafhopper.outbox (leaf, key, path, undoes) VALUES ('leaf', 'a:undo:1', '/', 1)",
        "INSERT INTO leafhopper.outbox (leaf, path, created_at) VALUES ('leaf', '/', now())",
        "INSERT INTO leafhopper.batch (id, state) VALUES (gen_random_uuid(), 'cancelled')",
        "UPDATE leafhopper.batch SET sealed = true",
        "INSERT INTO leafhopper.result (leaf, key, generation, status, source) \
         VALUES ('leaf', 'x', 1, 200, 'response')",
        "UPDATE leafhopper.result SET undone_at = now()",
        "DELETE FROM leafhopper.result",
        "INSERT INTO leafhopper.dispatch (call_id, leaf, key, run_when, priority, enqueued_at) \
         VALUES (9, 'leaf', 'x', 'ready', 0, now())",
        "UPDATE leafhopper.dispatch SET state = 'pending'",
        "SELECT * FROM leafhopper.dispatch",
        "SELECT * FROM leafhopper.finished",
        "SELECT * FROM leafhopper.attempt",
        "SELECT * FROM leafhopper.instance",
        "UPDATE leafhopper.leaf_control SET paused = true",
        "UPDATE leafhopper.setting SET value = ''",
        "DELETE FROM leafhopper.origin",
        "INSERT INTO leafhopper.operator_action (actor, action, reason) VALUES ('a', 'b', 'c')",
        "SELECT nextval('leafhopper.outbox_id_seq')",
        "SELECT setval('leafhopper.sleeping_until', 1)",
        "SELECT leafhopper.forget('leaf', 'k')",
        "SELECT leafhopper.cancel(1, 'r')",
        "SELECT leafhopper.retry(1, 'r')",
        "SELECT leafhopper.resolve_not_executed(1, 'r')",
        "SELECT leafhopper.waive(1, 'r')",
        "SELECT leafhopper.batch_reason(b) FROM leafhopper.batch b",
        "SELECT leafhopper.cancel_batch(gen_random_uuid(), 'r')",
        "SELECT leafhopper.seal(gen_random_uuid())",
        "SELECT leafhopper.take_word('leaf', 'k', 200, NULL, 'response')",
        "SELECT leafhopper.end_call(1, 'failed', 'rejected')",
        "SELECT leafhopper.note('a', 1, NULL, 'l', 'r')",
        "SELECT leafhopper.wake()",
        "SELECT leafhopper.standing('leaf', 'k')",
        "CREATE TABLE leafhopper.mine ()",
        "CREATE FUNCTION leafhopper.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "ALTER TABLE leafhopper.outbox DISABLE TRIGGER ALL",
        "DROP TRIGGER outbox_inserted ON leafhopper.outbox",
        "SET session_replication_role = replica",
    ] {
        role.refused(sql).await;
    }
    role.drop().await;
}

#[tokio::test]
async fn nobody_else_may_do_anything() {
    let bed = Bed::new().await;
    let role = Role::new(&bed, &[]).await;
    bed.app
        .execute(&format!("DROP OWNED BY \"{}\"", role.name))
        .await;
    for sql in [
        "SELECT * FROM leafhopper.outbox",
        "SELECT * FROM leafhopper.call",
        "INSERT INTO leafhopper.outbox (leaf, path) VALUES ('leaf', '/')",
        "SELECT leafhopper.confirm('leaf', 'k', 200)",
    ] {
        role.refused(sql).await;
    }
    // Also where the schema itself was opened by somebody.
    bed.app
        .execute(&format!(
            "GRANT USAGE ON SCHEMA leafhopper TO \"{}\"",
            role.name
        ))
        .await;
    let functions = "SELECT p.oid::regprocedure::text AS name FROM pg_proc p \
                      WHERE p.pronamespace = 'leafhopper'::regnamespace \
                        AND has_function_privilege(current_user, p.oid, 'EXECUTE')";
    // A constraint's function needs the right of whoever inserts, and looks at nothing but the row.
    let checks = [serde_json::json!({"name": "leafhopper.is_well_formed(leafhopper.outbox)"})];
    assert_eq!(role.app.rows(functions).await, checks);
    let tables = "SELECT c.oid::regclass::text AS name FROM pg_class c \
                   WHERE c.relnamespace = 'leafhopper'::regnamespace AND c.relkind IN ('r', 'v', 'S') \
                     AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(current_user, c.oid, 'USAGE') \
                              ELSE has_table_privilege(current_user, c.oid, 'SELECT, INSERT, UPDATE, DELETE') END";
    assert!(role.app.rows(tables).await.is_empty());
    role.drop().await;
}

#[tokio::test]
async fn an_app_s_objects_do_not_get_into_the_sidecar_s_functions() {
    let bed = Bed::new().await;
    let role = Role::new(&bed, &["confirm", "cancel"]).await;
    bed.app
        .execute(&format!(
            "CREATE SCHEMA evil; GRANT ALL ON SCHEMA evil TO \"{}\"",
            role.name
        ))
        .await;
    // Shadows of what the functions use, in a schema of the role's own and in its temporary one.
    for schema in ["evil", "pg_temp"] {
        for (name, result) in [
            ("clock_timestamp()", "timestamptz"),
            ("now()", "timestamptz"),
            ("pg_notify(text, text)", "void"),
            ("pg_notification_queue_usage()", "float8"),
            ("nullif(timestamptz, timestamptz)", "timestamptz"),
            ("regexp_replace(text, text, text)", "text"),
            ("current_setting(text, boolean)", "text"),
            ("btrim(text)", "text"),
        ] {
            role.app
                .execute(&format!(
                    "CREATE FUNCTION {schema}.{name} RETURNS {result} LANGUAGE plpgsql AS \
                     $$ BEGIN RAISE 'a shadow was called'; END $$"
                ))
                .await;
        }
    }
    role.app
        .execute(
            "SET search_path = evil, pg_temp, pg_catalog; CREATE TEMPORARY TABLE dispatch (); \
                  CREATE TEMPORARY TABLE inserted ()",
        )
        .await;
    let id = role.app.insert(keyed("leaf", "k")).await;
    role.app
        .execute(&format!(
            "SELECT leafhopper.cancel({id}, 'r'), leafhopper.confirm('leaf', 'l', 200)"
        ))
        .await;
    role.drop().await;
}
