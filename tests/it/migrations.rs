//! The schema: applied once, by whomever and however often, refused where it is newer than the program, and
//! the same as `sql/schema.sql` says.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::json;

use crate::harness::{
    Bed,
    app::{App, keyed},
    database::{self, Database},
    leaf::Leaf,
    sidecar::{Config, Starter},
    wait::until,
};

const SCHEMA_SQL_BEGINS: &str = "\
-- The schema as all files of sql/migrations together make it: to read, or to load into an empty database.
-- Written by a test: LEAFHOPPER_UPDATE_SCHEMA=1 cargo test --test it schema_sql
-- Functions stand before the tables that they read.
SET check_function_bodies = off;

";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A sidecar's starter for this database.
fn starter(database: &Database) -> Starter {
    let config = Config::new(&database.url);
    config.leaf("leaf", "http://127.0.0.1:9", "").sidecar()
}

async fn migrate(database: &Database) -> Output {
    starter(database).command(&["migrate"]).await
}

/// One of PostgreSQL's own programs, to its end.
async fn postgres(program: &str, arguments: &[&str]) -> String {
    let binaries = database::options(leafhopper::demo::cluster::Durability::Unsynced).binaries;
    let mut command = Command::new(binaries.program(program));
    command.args(arguments);
    let run = tokio::task::spawn_blocking(move || command.output());
    let output = run.await.unwrap().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The files of `sql/migrations` in their order.
fn files() -> Vec<PathBuf> {
    let files = std::fs::read_dir(root().join("sql/migrations")).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

async fn apply_with_psql(database: &Database, file: &Path) {
    let database = format!("--dbname={}", database.url);
    let file = format!("--file={}", file.display());
    let arguments = [
        "--no-psqlrc",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        "--single-transaction",
        &database,
        &file,
    ];
    postgres("psql", &arguments).await;
}

/// Whether this machine's `pg_dump` is as new as the server. Where it is not, that is said, past the capture.
async fn can_be_dumped(database: &Database) -> bool {
    let said = postgres("pg_dump", &["--version"]).await;
    let mut words = said.split_whitespace().skip(2);
    let ours: i32 = words
        .next()
        .unwrap()
        .split('.')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let app = App::connect(&database.url).await;
    let sql = "SELECT current_setting('server_version_num')::int / 10000 AS major";
    let servers = app.rows(sql).await[0]["major"].as_i64().unwrap();
    if i64::from(ours) < servers {
        let mut past_the_capture = std::io::stderr();
        writeln!(
            past_the_capture,
            "NOT TRIED: pg_dump {ours} can't dump PostgreSQL {servers}"
        )
        .unwrap();
    }
    i64::from(ours) >= servers
}

/// The schema, without what depends on the server or the moment.
async fn dump(database: &Database) -> String {
    let database = format!("--dbname={}", database.url);
    let arguments = [
        "--schema-only",
        "--no-owner",
        "--schema=leafhopper",
        &database,
    ];
    let dump = postgres("pg_dump", &arguments).await;
    let is_told = |line: &&str| {
        let comment = line.starts_with("--");
        let session = line.starts_with("SET ") || line.starts_with("SELECT pg_catalog.set_config");
        // A random word, which keeps a dump from saying commands of psql's.
        let restrict = line.starts_with("\\restrict") || line.starts_with("\\unrestrict");
        !(comment || session || restrict)
    };
    let mut tidy = String::new();
    for line in dump.lines().filter(is_told) {
        if !(line.is_empty() && tidy.ends_with("\n\n")) {
            tidy.push_str(line);
            tidy.push('\n');
        }
    }
    tidy.trim().to_owned() + "\n"
}

/// What the migrations put into tables.
async fn rows(app: &App) -> Vec<serde_json::Value> {
    app.rows(
        "SELECT 'schema_version' AS place, version::text AS name, name || ' ' || oldest_reader AS value \
           FROM leafhopper.schema_version \
          UNION ALL SELECT 'setting', name, value FROM leafhopper.setting ORDER BY 1, 2",
    )
    .await
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let database = Database::empty().await;
    let app = App::connect(&database.url).await;
    assert!(migrate(&database).await.status.success());
    let applied = "SELECT version, applied_at FROM leafhopper.schema_version";
    let first = app.rows(applied).await;
    assert_eq!(first.len(), files().len());
    app.insert(keyed("leaf", "k")).await;
    assert!(migrate(&database).await.status.success());
    assert_eq!(app.rows(applied).await, first);
    assert_eq!(app.rows("SELECT id FROM leafhopper.outbox").await.len(), 1);
}

#[tokio::test]
async fn eight_that_migrate_at_once_apply_each_step_once() {
    for _ in 0..5 {
        let database = Database::empty().await;
        let outputs = futures_util::future::join_all((0..8).map(|_| migrate(&database))).await;
        for output in outputs {
            assert!(output.status.success(), "{output:?}");
        }
        let app = App::connect(&database.url).await;
        let steps = app
            .rows("SELECT version FROM leafhopper.schema_version")
            .await;
        assert_eq!(steps.len(), files().len());
        let locks = "SELECT * FROM pg_locks WHERE locktype = 'advisory' \
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        assert!(
            app.rows(locks).await.is_empty(),
            "no lock outlives a migration"
        );
    }
}

#[tokio::test]
async fn a_migration_that_fails_leaves_nothing_and_can_be_repeated() {
    let database = Database::empty().await;
    let app = App::connect(&database.url).await;
    // In its way: a relation of a name that it wants, created late.
    app.execute("CREATE SCHEMA leafhopper; CREATE TABLE leafhopper.setting ()")
        .await;
    assert!(!migrate(&database).await.status.success());
    let left = "SELECT relname FROM pg_class WHERE relnamespace = 'leafhopper'::regnamespace";
    assert_eq!(app.rows(left).await, [json!({"relname": "setting"})]);
    app.execute("DROP TABLE leafhopper.setting").await;
    assert!(migrate(&database).await.status.success());
}

#[tokio::test]
async fn a_schema_that_is_newer_is_left_alone() {
    let database = Database::empty().await;
    if !can_be_dumped(&database).await {
        return;
    }
    let app = App::connect(&database.url).await;
    assert!(migrate(&database).await.status.success());
    let before = dump(&database).await;
    app.execute("INSERT INTO leafhopper.schema_version (version, name, oldest_reader) VALUES (1000, 'later', 1000)")
        .await;
    let refused = migrate(&database).await;
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("1000"), "{said}");
    assert_eq!(dump(&database).await, before);

    let mut sidecar = starter(&database).launch();
    assert_eq!(sidecar.exit().await.code(), Some(1));
    let said = format!("{:?}", sidecar.log());
    assert!(
        said.contains("the database's schema is version 1000"),
        "{said}"
    );
    assert!(
        app.rows("SELECT id FROM leafhopper.instance")
            .await
            .is_empty()
    );

    // Newer, but in a way that this program can work with.
    app.execute("UPDATE leafhopper.schema_version SET oldest_reader = 1")
        .await;
    let leaf = Leaf::start().await;
    let config = Config::new(&database.url).leaf("leaf", &leaf.url(), "");
    let _sidecar = config.start().await;
    let id = app.insert(keyed("leaf", "k")).await;
    app.until_state(id, "confirmed").await;
}

#[tokio::test]
async fn a_state_that_a_later_version_has_is_left_alone() {
    let bed = Bed::new().await;
    bed.app
        .execute(
            "INSERT INTO leafhopper.outbox (leaf, key, path, deadline, ordering_key) \
             SELECT 'leaf', 'later ' || n, '/things', now(), 'later' FROM generate_series(1, 2) AS n",
        )
        .await;
    let later = "SELECT * FROM leafhopper.dispatch WHERE key LIKE 'later %' ORDER BY call_id";
    let constraints = "SELECT conname FROM pg_constraint \
                        WHERE conrelid = 'leafhopper.dispatch'::regclass AND contype = 'c'";
    for constraint in bed.app.rows(constraints).await {
        let name = constraint["conname"].as_str().unwrap();
        let drop = format!("ALTER TABLE leafhopper.dispatch DROP CONSTRAINT \"{name}\"");
        bed.app.execute(&drop).await;
    }
    bed.app
        .execute(
            "UPDATE leafhopper.dispatch SET state = 'approving', held = NULL, in_doubt_since = now(), \
                    due_at = now(), alive_until = now(), instance = gen_random_uuid() WHERE key = 'later 1'; \
             UPDATE leafhopper.dispatch SET held = 'region', deadline = NULL WHERE key = 'later 2'",
        )
        .await;
    let before = bed.app.rows(later).await;
    let config = bed.config("").dispatch("lease = \"1s\"");
    let mut first = config.start().await;
    let expires = bed
        .app
        .insert(keyed("leaf", "expires").set("deadline", "-infinity"))
        .await;
    bed.app.until_state(expires, "expired").await;
    let ordered = keyed("leaf", "ordered").set("ordering_key", "o");
    let ordered = bed.app.insert(ordered).await;
    bed.app.until_state(ordered, "confirmed").await;
    // Its claims are looked for, and so are those of instances without a row.
    first.kill();
    let second = config.start().await;
    let last = bed.app.insert(keyed("leaf", "last")).await;
    bed.app.until_state(last, "confirmed").await;
    until("the dead one's row is gone", async || {
        let rows = bed.app.rows("SELECT id FROM leafhopper.instance").await;
        if rows.len() == 1 { Ok(()) } else { Err(rows) }
    })
    .await;
    assert_eq!(bed.app.rows(later).await, before);
    // It is shown, and nothing that shows it fails.
    assert_eq!(second.get("/metrics").await.0, 200);
    let shown = second.command(&["calls", "--json"]).await;
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.status.success() && text.contains("approving"),
        "{text}"
    );
    let id = before[0]["call_id"].to_string();
    assert!(second.command(&["show", &id]).await.status.success());
    // It is no law of this version's that they keep.
    bed.app
        .execute("SET session_replication_role = replica; DELETE FROM leafhopper.dispatch; DELETE FROM leafhopper.outbox WHERE key LIKE 'later %'")
        .await;
}

#[tokio::test]
async fn a_column_that_is_added_while_it_runs_costs_nothing() {
    let bed = Bed::new().await;
    bed.leaf.on("/refused").refuses(404);
    let sidecar = bed.sidecar("").await;
    for table in ["outbox", "dispatch", "result", "finished", "attempt"] {
        let key = format!("before {table}");
        let before = bed.app.insert(keyed("leaf", &key)).await;
        bed.app.until_state(before, "confirmed").await;
        bed.app
            .execute(&format!(
                "ALTER TABLE leafhopper.{table} ADD COLUMN later_on text NOT NULL DEFAULT 'x'"
            ))
            .await;
        let key = format!("after {table}");
        let after = bed.app.insert(keyed("leaf", &key)).await;
        bed.app.until_state(after, "confirmed").await;
        let refused = bed
            .app
            .insert(keyed("leaf", &format!("no {table}")).path("/refused"));
        bed.app.until_state(refused.await, "failed").await;
    }
    // A lock that somebody waits for is no error of a statement's.
    let failed = |line: &serde_json::Value| {
        line["database.operation"].is_string() && !line.to_string().contains("lock timeout")
    };
    let log = sidecar.log();
    assert!(!log.iter().any(failed), "{log:#?}");
}

#[tokio::test]
async fn without_the_schema_a_sidecar_says_what_to_do() {
    let database = Database::empty().await;
    let mut sidecar = starter(&database).launch();
    assert_eq!(sidecar.exit().await.code(), Some(1));
    let said = format!("{:?}", sidecar.log());
    assert!(said.contains("leafhopper migrate"), "{said}");
}

#[tokio::test]
async fn the_files_can_be_applied_by_any_tool() {
    let database = Database::empty().await;
    if !can_be_dumped(&database).await {
        return;
    }
    for file in files() {
        apply_with_psql(&database, &file).await;
    }
    let app = App::connect(&database.url).await;
    let before = dump(&database).await;
    assert!(migrate(&database).await.status.success());
    assert_eq!(
        dump(&database).await,
        before,
        "the command finds nothing to do"
    );

    let commanded = Database::empty().await;
    assert!(migrate(&commanded).await.status.success());
    assert_eq!(dump(&commanded).await, before);
    assert_eq!(
        rows(&App::connect(&commanded.url).await).await,
        rows(&app).await
    );
}

#[tokio::test]
async fn schema_sql_is_what_the_migrations_make() {
    let migrated = Database::empty().await;
    if !can_be_dumped(&migrated).await {
        return;
    }
    assert!(migrate(&migrated).await.status.success());
    let file = root().join("sql/schema.sql");
    let app = App::connect(&migrated.url).await;
    let expected = dump(&migrated).await;
    if std::env::var_os("LEAFHOPPER_UPDATE_SCHEMA").is_some_and(|value| value == "1") {
        std::fs::write(&file, text_of_schema_sql(&app, &expected).await).unwrap();
    }
    let database = Database::empty().await;
    apply_with_psql(&database, &file).await;
    let hint = "LEAFHOPPER_UPDATE_SCHEMA=1 cargo test --test it schema_sql writes it anew";
    assert_eq!(dump(&database).await, expected, "{hint}");
    let loaded = App::connect(&database.url).await;
    assert_eq!(rows(&loaded).await, rows(&app).await, "{hint}");
}

async fn text_of_schema_sql(app: &App, dump: &str) -> String {
    let mut text = SCHEMA_SQL_BEGINS.to_owned();
    text.push_str(dump);
    let inserts = "SELECT format('INSERT INTO leafhopper.schema_version (version, name, oldest_reader) \
                                  VALUES (%s, %L, %s);', version, name, oldest_reader) AS line \
                     FROM leafhopper.schema_version ORDER BY version";
    let settings = "SELECT format('INSERT INTO leafhopper.setting VALUES (%L, %L);', name, value) AS line \
                      FROM leafhopper.setting ORDER BY name";
    text.push('\n');
    for sql in [inserts, settings] {
        for row in app.rows(sql).await {
            text.push_str(row["line"].as_str().unwrap());
            text.push('\n');
        }
    }
    text.push_str("\nRESET check_function_bodies;\n");
    text
}
