//! What each migration locks and reads is what its header says, and nothing is written anew: looked at in its own
//! transaction, on tables with rows.

use std::collections::{BTreeMap, BTreeSet};

use leafhopper::store::migrate::MIGRATIONS;

use crate::harness::{app::App, database::Database};

/// Rows that each of the growing tables gets before each migration.
const ROWS: usize = 500;

/// The modes that keep rows from being written (PostgreSQL, chapter 13.3.1), weakest first.
const MODES: [(&str, &str); 4] = [
    ("ShareLock", "SHARE"),
    ("ShareRowExclusiveLock", "SHARE ROW EXCLUSIVE"),
    ("ExclusiveLock", "EXCLUSIVE"),
    ("AccessExclusiveLock", "ACCESS EXCLUSIVE"),
];

/// The tables that writers would wait for, each with the strongest mode; and those that are read from end to end meanwhile.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    locks: BTreeMap<String, String>,
    reads: BTreeSet<String>,
    /// Written anew as a whole.
    rewritten: BTreeSet<String>,
    /// What was there, and that somebody has lost a right on.
    closed: BTreeSet<String>,
}

/// Rows for the tables that grow, without what follows from them.
async fn fill(app: &App) {
    let rows = format!(
        "generate_series(coalesce((SELECT max(id) FROM leafhopper.outbox), 0) - {ROWS} + 1, coalesce((SELECT max(id) FROM leafhopper.outbox), 0)) AS n"
    );
    app.execute(&format!(
        "SET session_replication_role = replica; \
         INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/' FROM generate_series(1, {ROWS}); \
         INSERT INTO leafhopper.dispatch (call_id, leaf, key, run_when, priority, enqueued_at) \
         SELECT n, 'leaf', 'k', 'ready', 0, now() FROM {rows}; \
         INSERT INTO leafhopper.finished (call_id, state) SELECT n, 'cancelled' FROM {rows}; \
         INSERT INTO leafhopper.result (leaf, key, generation, status, source) SELECT 'leaf', n::text, 1, 200, 'response' FROM {rows}; \
         INSERT INTO leafhopper.attempt (call_id, attempt, class) SELECT n, 1, 'retry' FROM {rows}; \
         INSERT INTO leafhopper.batch (id) SELECT gen_random_uuid() FROM {rows}; \
         INSERT INTO leafhopper.operator_action (actor, action, reason) SELECT 'a', 'b', 'c' FROM {rows}; \
         SET session_replication_role = origin"
    ))
    .await;
}

/// How many rows of each table this session has read, by the end of its statement before.
async fn read(app: &App) -> BTreeMap<String, i64> {
    let rows = "SELECT relname AS name, seq_tup_read AS rows FROM pg_stat_xact_user_tables WHERE schemaname = 'leafhopper'";
    let rows = app.rows(rows).await.into_iter();
    rows.map(|row| {
        (
            row["name"].as_str().unwrap().to_owned(),
            row["rows"].as_i64().unwrap(),
        )
    })
    .collect()
}

/// A migration in a transaction of its own, which stays open for the looks.
async fn seen(app: &App, sql: &str) -> Seen {
    let relations = "SELECT c.relname AS name, c.relfilenode::text AS file, c.relacl::text[] AS rights, c.relkind = 'r' AS is_table \
                       FROM pg_class c WHERE c.relnamespace = to_regnamespace('leafhopper') AND c.relkind IN ('r', 'v')";
    let of = |rows: &[serde_json::Value]| -> BTreeMap<String, serde_json::Value> {
        let named = rows
            .iter()
            .map(|row| (row["name"].as_str().unwrap().to_owned(), row.clone()));
        named.collect()
    };
    app.execute("BEGIN").await;
    let (before, was_read) = (of(&app.rows(relations).await), read(app).await);
    app.execute(sql).await;
    let after = of(&app.rows(relations).await);
    let held = "SELECT c.relname AS name, l.mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
                 WHERE l.pid = pg_backend_pid() AND c.relkind = 'r' AND c.relnamespace = 'leafhopper'::regnamespace";
    let held = app.rows(held).await;
    let was_table = |name: &str| before.get(name).is_some_and(|row| row["is_table"] == true);
    let mut locks = BTreeMap::new();
    // The strongest is the last one, and stays.
    for (mode, word) in MODES {
        for row in held.iter().filter(|row| row["mode"] == mode) {
            let name = row["name"].as_str().unwrap();
            if was_table(name) {
                locks.insert(name.to_owned(), word.to_owned());
            }
        }
    }
    let reads = read(app).await.into_iter().filter(|(name, rows)| {
        let earlier = was_read.get(name).copied().unwrap_or_default();
        rows - earlier >= i64::try_from(ROWS).unwrap() && locks.contains_key(name)
    });
    let reads = reads.map(|(name, _)| name).collect();
    let changed =
        |field: &str, is_changed: &dyn Fn(&serde_json::Value, &serde_json::Value) -> bool| {
            let both = before
                .iter()
                .filter_map(|(name, was)| Some((name, was, after.get(name)?)));
            let changed = both.filter(|(_, was, is)| is_changed(&was[field], &is[field]));
            changed
                .map(|(name, ..)| name.clone())
                .collect::<BTreeSet<_>>()
        };
    let rewritten = changed("file", &|was, is| was != is);
    let closed = changed("rights", &|was, is| {
        let none = Vec::new();
        let (was, is) = (
            was.as_array().unwrap_or(&none),
            is.as_array().unwrap_or(&none),
        );
        was.iter().any(|right| !is.contains(right))
    });
    Seen {
        locks,
        reads,
        rewritten,
        closed,
    }
}

/// What a header says: the text behind its word, up to the first full stop.
fn said(sql: &str, word: &str) -> String {
    let text = sql
        .lines()
        .find_map(|line| line.strip_prefix(&format!("-- {word}:")));
    let text = text.unwrap_or_else(|| {
        panic!(
            "no -- {word}: in {}",
            sql.lines().next().unwrap_or_default()
        )
    });
    text.split('.').next().unwrap().trim().to_owned()
}

/// `MODE on a, b; MODE on c`, or `none …`.
fn locks_said(sql: &str) -> BTreeMap<String, String> {
    let text = said(sql, "Locks");
    let parts = text.split("; ").filter_map(|part| part.split_once(" on "));
    parts
        .filter(|_| !text.starts_with("none"))
        .flat_map(|(mode, tables)| {
            tables
                .split(", ")
                .map(|table| (table.to_owned(), mode.to_owned()))
        })
        .collect()
}

fn reads_said(sql: &str) -> BTreeSet<String> {
    let text = said(sql, "Reads");
    let tables = text.split(", ").filter(|table| *table != "none");
    tables.map(str::to_owned).collect()
}

#[tokio::test]
async fn each_migration_locks_and_reads_what_its_header_says() {
    let database = Database::empty().await;
    let app = App::connect(&database.url).await;
    for migration in MIGRATIONS {
        if migration.version > 1 {
            fill(&app).await;
            app.execute("GRANT SELECT ON ALL TABLES IN SCHEMA leafhopper TO pg_monitor")
                .await;
        }
        let expected = Seen {
            locks: locks_said(migration.sql),
            reads: reads_said(migration.sql),
            rewritten: BTreeSet::new(),
            closed: BTreeSet::new(),
        };
        assert_eq!(
            seen(&app, migration.sql).await,
            expected,
            "{}",
            migration.name
        );
        app.execute("COMMIT").await;
        // From here on apps insert: what keeps them waiting is a lock for an instant, or none.
        let read = migration.version > 4
            && expected
                .reads
                .iter()
                .any(|table| ["outbox", "batch", "dispatch"].contains(&table.as_str()));
        assert!(
            !read,
            "{} reads a table whose writers wait for it",
            migration.name
        );
    }
}

#[tokio::test]
async fn what_a_migration_does_to_its_tables_is_seen() {
    let database = Database::new().await;
    let app = App::connect(&database.url).await;
    fill(&app).await;
    for (sql, mode, reads, rewrites) in [
        (
            "ALTER TABLE leafhopper.outbox ADD COLUMN later_on text",
            "ACCESS EXCLUSIVE",
            false,
            false,
        ),
        (
            "CREATE INDEX later_on ON leafhopper.outbox (path)",
            "SHARE",
            true,
            false,
        ),
        (
            "ALTER TABLE leafhopper.outbox ADD CONSTRAINT later_on CHECK (path <> '')",
            "ACCESS EXCLUSIVE",
            true,
            false,
        ),
        (
            "ALTER TABLE leafhopper.outbox ADD CONSTRAINT later_on CHECK (path <> '') NOT VALID",
            "ACCESS EXCLUSIVE",
            false,
            false,
        ),
        (
            "ALTER TABLE leafhopper.outbox ADD COLUMN later_on text DEFAULT clock_timestamp()::text",
            "ACCESS EXCLUSIVE",
            true,
            true,
        ),
    ] {
        let seen = seen(&app, sql).await;
        app.execute("ROLLBACK").await;
        assert_eq!(
            seen.locks,
            BTreeMap::from([("outbox".to_owned(), mode.to_owned())]),
            "{sql}"
        );
        assert_eq!(
            (
                seen.reads.contains("outbox"),
                seen.rewritten.contains("outbox")
            ),
            (reads, rewrites),
            "{sql}"
        );
    }
    let role = database.sidecar_url();
    let role = role.split(['/', ':']).nth(3).unwrap();
    let revokes = format!("REVOKE SELECT ON leafhopper.call FROM \"{role}\"");
    assert_eq!(
        seen(&app, &revokes).await.closed,
        BTreeSet::from(["call".to_owned()])
    );
    app.execute("ROLLBACK; SET session_replication_role = replica; DELETE FROM leafhopper.dispatch; DELETE FROM leafhopper.finished; \
                 DELETE FROM leafhopper.attempt; DELETE FROM leafhopper.outbox; DELETE FROM leafhopper.batch; DELETE FROM leafhopper.result").await;
}
