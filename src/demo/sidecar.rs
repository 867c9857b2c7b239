//! The demo's sidecar: this very program as a process of its own, so that it can be killed.

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, bail};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin, Command},
};

/// The shell becomes the sidecar. Its watchdog, a grandchild, kills it when the pipe ends without a line: then
/// the demo has died, in whatever way, and nobody else would.
const WATCHED: &str = r#"
sidecar=$$
exec 3<&0 </dev/null
( ( read -r _ <&3 || kill -KILL "$sidecar" ) & )
exec "$@" 3<&-
"#;

/// The sidecar, running or not.
#[derive(Debug)]
pub(super) struct Sidecar {
    program: PathBuf,
    config: PathBuf,
    /// Where it listens; the same after each start.
    address: String,
    running: Option<(Child, ChildStdin)>,
}

impl Sidecar {
    /// Writes its configuration.
    pub(super) fn prepare(folder: &Path, url: &str, leaves: &str) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|free| free.local_addr())
            .context("a free port for the sidecar")?
            .to_string();
        let text = include_str!("leafhopper.toml")
            .replace("{url}", url)
            .replace("{address}", &address)
            .replace("{leaves}", leaves);
        let config = folder.join("leafhopper.toml");
        let mut file = fs::File::options()
            .write(true)
            .create_new(true)
            // It holds the database's password.
            .mode(0o600)
            .open(&config)?;
        file.write_all(text.as_bytes())?;
        Ok(Self {
            program,
            config,
            address,
            running: None,
        })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn config(&self) -> &Path {
        &self.config
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Runs one of its other commands to its end.
    pub(super) async fn command(&self, words: &[&str]) -> anyhow::Result<()> {
        let output = Command::new(&self.program)
            .arg("--config")
            .arg(&self.config)
            .args(words)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("leafhopper {}: {}", words.join(" "), said.trim());
        }
        Ok(())
    }

    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let mut child = Command::new("sh")
            .args(["-c", WATCHED, "sh"])
            .arg(&self.program)
            .arg("--config")
            .arg(&self.config)
            .arg("run")
            // A Ctrl-C at the terminal is the demo's to handle.
            .process_group(0)
            .stdin(Stdio::piped())
            // Its warnings belong to the story, where the story tells them.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start the sidecar")?;
        let watchdog = child.stdin.take().context("its standard input is a pipe")?;
        self.running = Some((child, watchdog));
        Ok(())
    }

    /// SIGKILL: no chance to say or save anything.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some((mut child, mut watchdog)) = self.running.take() {
            child.kill().await?;
            // Its watchdog may go, too.
            watchdog.write_all(b"ended\n").await.ok();
        }
        Ok(())
    }
}
