//! What the demo's app does: plain SQL, in transactions of its own, through `psql`. Any language would do.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{process::Command, time::Instant};

/// Between the columns of a row in `psql`'s output; no value of the demo holds it.
const SEPARATOR: char = '\u{1f}';

/// So long the demo waits for something to become true.
const PATIENCE: Duration = Duration::from_secs(30);

/// The app.
#[derive(Debug)]
pub(super) struct App {
    psql: PathBuf,
    url: String,
}

impl App {
    pub(super) fn psql(&self) -> &Path {
        &self.psql
    }

    pub(super) fn new(psql: PathBuf, url: &str) -> Self {
        Self {
            psql,
            url: url.to_owned(),
        }
    }

    /// Runs statements in one transaction, and gives the rows of those that return some.
    pub(super) async fn sql(&self, statements: &str) -> anyhow::Result<Vec<Vec<String>>> {
        let output = Command::new(&self.psql)
            .args([
                "--no-psqlrc",
                "--quiet",
                "--tuples-only",
                "--no-align",
                "--single-transaction",
            ])
            .args(["--set", "ON_ERROR_STOP=1", "--field-separator"])
            .arg(SEPARATOR.to_string())
            .args(["--command", statements, &self.url])
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| {
                format!(
                    "can't run {}: apt-get install postgresql-client",
                    self.psql.display()
                )
            })?;
        if !output.status.success() {
            bail!(
                "psql said: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rows = text.lines().filter(|line| !line.is_empty());
        Ok(rows
            .map(|line| line.split(SEPARATOR).map(str::to_owned).collect())
            .collect())
    }

    /// The one value that a query gives.
    pub(super) async fn value(&self, query: &str) -> anyhow::Result<String> {
        let rows = self.sql(query).await?;
        let value = rows.into_iter().flatten().next();
        value.with_context(|| format!("no row: {query}"))
    }

    /// Waits until the query gives `true`.
    pub(super) async fn until(&self, what: &str, query: &str) -> anyhow::Result<()> {
        until(what, async || Ok(self.value(query).await? == "t")).await
    }
}

/// Waits until it holds.
pub(super) async fn until(
    what: &str,
    mut holds: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    while !holds().await? {
        if started.elapsed() > PATIENCE {
            bail!("{what} did not happen within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
