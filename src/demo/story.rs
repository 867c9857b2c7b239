//! The demo's story, step by step: what the app does, what goes wrong, and where each call ends.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use super::{app::App, leaf::DemoLeaf};

type Out<'a> = &'a mut (dyn Write + Send);

/// The sidecar as a process of its own: this very program.
#[derive(Debug)]
pub(super) struct Sidecar {
    program: PathBuf,
    config: PathBuf,
    /// Where it listens; the same after each start.
    address: SocketAddr,
    child: Option<Child>,
}

impl Sidecar {
    /// Writes its configuration.
    pub(super) fn prepare(folder: &Path, url: &str, leaf: u16) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        fs::create_dir_all(folder)?;
        // It holds the database's password.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        let config = folder.join("leafhopper.toml");
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|free| free.local_addr())
            .context("a free port for the sidecar")?;
        let text = format!(
            r#"[database]
url = "{url}"

[listen]
address = "{address}"

[dispatch]
lease = "2s"
poll_interval = "200ms"

[retry]
initial = "200ms"

[leaf.git]                      # neither dedups nor can be asked: a doubt waits for a person
base_url = "http://127.0.0.1:{leaf}/git"
in_doubt = "park"

[leaf.host]
base_url = "http://127.0.0.1:{leaf}/host"
in_doubt = "park"

[leaf.pay]                      # honours an idempotency key: a doubt is resolved with the same key
base_url = "http://127.0.0.1:{leaf}/pay"
timeout = "4s"                  # so long an attempt can be alive after its instance has vanished
[leaf.pay.idempotency]
header = "Idempotency-Key"
window = "24h"
"#
        );
        fs::write(&config, text)?;
        Ok(Self {
            program,
            config,
            address,
            child: None,
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--config")
            .arg(&self.config)
            .args(words)
            .kill_on_drop(true);
        // Its warnings belong to the story, where the story tells them.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    pub(super) async fn migrate(&self) -> anyhow::Result<()> {
        let output = self
            .command(&["migrate"])
            .stderr(Stdio::piped())
            .output()
            .await?;
        if !output.status.success() {
            bail!(
                "leafhopper migrate: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.child = Some(self.command(&["run"]).spawn()?);
        Ok(())
    }

    /// SIGKILL: no chance to say or save anything.
    async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }
}

/// Tells it. `true` where the leaves' ledger and the database agree. With `stay_at`, the database's URL, it then
/// leaves everything up until Ctrl-C.
pub(super) async fn tell(
    app: &App,
    leaf: &DemoLeaf,
    mut sidecar: Sidecar,
    stay_at: Option<&str>,
    out: Out<'_>,
) -> anyhow::Result<bool> {
    app.sql("CREATE TABLE site (id int PRIMARY KEY, name text)")
        .await?;
    sidecar.start()?;
    happy_path(app, out).await?;
    trouble(app, leaf, out).await?;
    crash(app, leaf, &mut sidecar, out).await?;
    batch(app, leaf, out).await?;
    person(app, out).await?;
    let agree = reckoning(app, leaf, out).await?;
    if let Some(url) = stay_at {
        what_next(&sidecar, url, out)?;
        tokio::signal::ctrl_c().await?;
    }
    sidecar.kill().await?;
    Ok(agree)
}

/// For who wants to look around.
fn what_next(sidecar: &Sidecar, url: &str, out: Out<'_>) -> std::io::Result<()> {
    let config = sidecar.config.display();
    writeln!(
        out,
        "\nStill running, until Ctrl-C.\n\
         \x20 the database   {url}\n\
         \x20 the sidecar    http://{address} (/metrics, /livez, /readyz)\n\
         Write a call of your own, and look around:\n\
         \x20 psql '{url}' -c \"INSERT INTO leafhopper.outbox (leaf, key, path, body) \
         VALUES ('git', 'mine', '/repos', '{{\\\"key\\\": \\\"mine\\\"}}')\"\n\
         \x20 psql '{url}' -c 'SELECT id, leaf, key, state, reason FROM leafhopper.call'\n\
         \x20 {program} --config {config} calls\n\
         \x20 {program} --config {config} show 5\n",
        address = sidecar.address,
        program = sidecar.program.display(),
    )?;
    out.flush()
}

async fn happy_path(app: &App, out: Out<'_>) -> anyhow::Result<()> {
    let sql = "INSERT INTO site VALUES (42, 'Ada''s shop');
   INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES
     ('git', 'site:42:repo',   '/repos',   '{\"key\": \"site:42:repo\"}'),
     ('pay', 'site:42:charge', '/charges', '{\"key\": \"site:42:charge\"}');";
    writeln!(
        out,
        "\n1. An app writes its row and two calls, in one transaction:\n\n   {sql}\n"
    )?;
    app.sql(sql).await?;
    app.sql(
        "INSERT INTO leafhopper.outbox (leaf, key, path, body)
         VALUES ('git', 'site:41:repo', '/repos', '{\"key\": \"site:41:repo\"}'); ROLLBACK",
    )
    .await?;
    writeln!(
        out,
        "   And one more in a transaction that it rolls back: site:41:repo must not be made."
    )?;
    app.until(
        "the first calls' confirmation",
        &confirmed(&["site:42:repo", "site:42:charge"]),
    )
    .await?;
    writeln!(
        out,
        "   Both were made, and what the leaves answered is in leafhopper.result."
    )?;
    app.sql(
        "INSERT INTO leafhopper.outbox (leaf, key, path, body)
         VALUES ('git', 'site:42:repo', '/repos', '{\"key\": \"site:42:repo\"}')",
    )
    .await?;
    app.until(
        "the second call's confirmation",
        "SELECT count(*) = 2 FROM leafhopper.call WHERE key = 'site:42:repo' AND state = 'confirmed'",
    )
    .await?;
    writeln!(
        out,
        "   The same call once more: confirmed from the record, nothing is sent."
    )?;
    Ok(())
}

async fn trouble(app: &App, leaf: &DemoLeaf, out: Out<'_>) -> anyhow::Result<()> {
    writeln!(
        out,
        "\n2. Leaves misbehave. git is busy twice; pay executes a charge and loses the answer; git does \
         the same."
    )?;
    app.sql(
        r#"INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES
           ('git', 'site:43:repo',   '/repos',   '{"key": "site:43:repo",   "then": "be busy"}'),
           ('pay', 'site:43:charge', '/charges', '{"key": "site:43:charge", "then": "lose the answer"}'),
           ('git', 'site:44:repo',   '/repos',   '{"key": "site:44:repo",   "then": "lose the answer"}')"#,
    )
    .await?;
    app.until(
        "the retries",
        &confirmed(&["site:43:repo", "site:43:charge"]),
    )
    .await?;
    app.until(
        "the parking",
        "SELECT state = 'parked' FROM leafhopper.call WHERE key = 'site:44:repo'",
    )
    .await?;
    writeln!(
        out,
        "   git was tried {} times until it had time. pay was sent the same Idempotency-Key again, and \
         answered\n   from its memory. git has no such memory: that call is parked, and not sent again.",
        leaf.requests("git site:43:repo")
    )?;
    Ok(())
}

async fn crash(
    app: &App,
    leaf: &DemoLeaf,
    sidecar: &mut Sidecar,
    out: Out<'_>,
) -> anyhow::Result<()> {
    writeln!(
        out,
        "\n3. The sidecar is killed (SIGKILL) while 40 charges are under way."
    )?;
    app.sql(
        r"INSERT INTO leafhopper.outbox (leaf, key, path, body)
          SELECT 'pay', 'charge:' || i, '/charges', jsonb_build_object('key', 'charge:' || i, 'then', 'think')
            FROM generate_series(1, 40) i",
    )
    .await?;
    app.until(
        "the charges under way",
        "SELECT count(*) = 40 FROM leafhopper.call WHERE state = 'dispatching' AND key LIKE 'charge:%'",
    )
    .await?;
    sidecar.kill().await?;
    let left = app
        .sql("SELECT count(*) FROM leafhopper.call WHERE state = 'dispatching'")
        .await?;
    let left = left
        .first()
        .and_then(|row| row.first())
        .cloned()
        .unwrap_or_default();
    sidecar.start()?;
    app.until(
        "the charges' confirmation",
        "SELECT count(*) = 40 FROM leafhopper.call WHERE key LIKE 'charge:%' AND state = 'confirmed'",
    )
    .await?;
    let twice = leaf
        .effects()
        .iter()
        .filter(|(_, times)| **times > 1)
        .count();
    writeln!(
        out,
        "   pay had executed them, and nobody wrote down {left} of the answers. The next instance sends the same\n   \
         keys again, and pay answers from its memory: all 40 exist, {twice} of them twice."
    )?;
    Ok(())
}

async fn batch(app: &App, leaf: &DemoLeaf, out: Out<'_>) -> anyhow::Result<()> {
    writeln!(
        out,
        "\n4. A batch: the host is at work, the DNS call of the same batch is refused, a third one waits."
    )?;
    app.sql(
        r#"INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id) VALUES
           ('host', 'site:45:host', '/sites', '{"key": "site:45:host"}', '00000000-0000-4000-8000-000000000045')"#,
    )
    .await?;
    app.until(
        "the host's call under way",
        "SELECT state = 'dispatching' FROM leafhopper.call WHERE key = 'site:45:host'",
    )
    .await?;
    app.sql(
        r#"INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, not_before) VALUES
           ('git', 'site:45:dns',  '/zones', '{"key": "site:45:dns", "then": "refuse"}', '00000000-0000-4000-8000-000000000045', NULL),
           ('git', 'site:45:repo', '/repos', '{"key": "site:45:repo"}',                  '00000000-0000-4000-8000-000000000045', now() + interval '1 hour')"#,
    )
    .await?;
    app.until(
        "the sibling's cancel",
        "SELECT state = 'cancelled' FROM leafhopper.call WHERE key = 'site:45:repo'",
    )
    .await?;
    leaf.release();
    app.until("the host's confirmation", &confirmed(&["site:45:host"]))
        .await?;
    writeln!(
        out,
        "   The one that waited is cancelled in time; the one under way runs to its end, and its site is on \
         record."
    )?;
    Ok(())
}

async fn person(app: &App, out: Out<'_>) -> anyhow::Result<()> {
    let sql =
        "SELECT leafhopper.confirm('git', 'site:44:repo', 201, '{\"seen\": \"by a person\"}')";
    writeln!(
        out,
        "\n5. A person looked at git: the parked repository is there. They say so:\n\n   {sql};"
    )?;
    app.sql(sql).await?;
    app.until("the word's effect", &confirmed(&["site:44:repo"]))
        .await?;
    Ok(())
}

/// The leaves' own ledger against the database.
async fn reckoning(app: &App, leaf: &DemoLeaf, out: Out<'_>) -> anyhow::Result<bool> {
    let rows = app
        .sql(
            "SELECT leaf || ' ' || key, state, coalesce(reason, ''), attempts
               FROM leafhopper.call WHERE key NOT LIKE 'charge:%' ORDER BY id",
        )
        .await?;
    let effects = leaf.effects();
    writeln!(
        out,
        "\n   {:<20} {:<10} {:<16} {:>8} {:>8}",
        "call", "state", "reason", "attempts", "effects"
    )?;
    for row in &rows {
        if let [call, state, reason, attempts] = row.as_slice() {
            let times = effects.get(call).copied().unwrap_or_default();
            writeln!(
                out,
                "   {call:<20} {state:<10} {reason:<16} {attempts:>8} {times:>8}"
            )?;
        }
    }
    let confirmed = app
        .sql("SELECT DISTINCT leaf || ' ' || key FROM leafhopper.call WHERE state = 'confirmed'")
        .await?;
    let doubled = effects.values().filter(|times| **times > 1).count();
    let lost = confirmed
        .iter()
        .flatten()
        .filter(|call| !effects.contains_key(*call))
        .count();
    let unknown = effects.len() - (confirmed.len() - lost);
    writeln!(
        out,
        "\n   The leaves hold {} effects, the database {} confirmed keys: {doubled} doubled, {lost} missing, \
         {unknown} unknown.",
        effects.len(),
        confirmed.len(),
    )?;
    // What is written to a pipe should be seen before the server stops.
    out.flush()?;
    let rolled_back = leaf.requests("git site:41:repo");
    Ok(doubled == 0 && lost == 0 && unknown == 0 && rolled_back == 0)
}

/// All calls of these keys are confirmed.
fn confirmed(keys: &[&str]) -> String {
    let list = keys
        .iter()
        .map(|key| format!("'{key}'"))
        .collect::<Vec<_>>()
        .join(", ");
    format!("SELECT bool_and(state = 'confirmed') FROM leafhopper.call WHERE key IN ({list})")
}
