//! The laws of the data: each file of `sql/checks` is a query that must find nothing, at any time.

use std::path::Path;

/// Runs every check, and panics with the rows of those that find something.
pub(crate) async fn run(client: &tokio_postgres::Client) {
    let broken = broken(client, &files()).await;
    assert!(
        broken.is_empty(),
        "laws of the data are broken:\n{}",
        broken.join("\n")
    );
}

/// What these checks, by name and text, find.
pub(crate) async fn broken(
    client: &tokio_postgres::Client,
    checks: &[(String, String)],
) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, sql) in checks {
        // On a line of its own: a comment at the end must not swallow the bracket.
        let sql = sql.trim_end().trim_end_matches(';');
        let sql = format!("SELECT to_jsonb(found) FROM (\n{sql}\n) AS found");
        let rows = client
            .query(&sql, &[])
            .await
            .unwrap_or_else(|e| panic!("{name}: {e:?}"));
        broken.extend(rows.iter().map(|row| {
            let row: serde_json::Value = row.get(0);
            format!("{name}: {row}")
        }));
    }
    broken
}

/// Name and text of each check.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/checks");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sql"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}
