//! A process that is measured: its end, its memory, its time.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use crate::bench::Bench;

#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    log: PathBuf,
    /// Where the sidecar answers.
    pub(crate) port: Option<u16>,
}

/// What the kernel counts for a process, in MB (10^6 bytes).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) most: f64,
}

impl Worker {
    pub(crate) fn start(
        bench: &Bench,
        name: &str,
        mut command: Command,
        port: Option<u16>,
    ) -> anyhow::Result<Self> {
        let log = bench.folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { child, log, port })
    }

    /// Waits for it to end well by itself.
    pub(crate) async fn finished(mut self, limit: Duration) -> anyhow::Result<()> {
        let status = tokio::time::timeout(limit, self.child.wait())
            .await
            .context("it does not end")??;
        if !status.success() {
            bail!("{status}: {}", self.said());
        }
        Ok(())
    }

    /// An error once it has ended.
    pub(crate) fn runs(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it ended ({status}): {}", self.said());
        }
        Ok(())
    }

    pub(crate) async fn kill(mut self) {
        self.child.kill().await.ok();
    }

    /// The end of what it said.
    fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        let status = self.proc("status")?;
        let megabytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kibibytes =
                line.and_then(|rest| rest.split_whitespace().nth(1)?.parse::<f64>().ok());
            kibibytes.map(|k| k * 1024.0 / 1e6).context("no such line")
        };
        Ok(Memory {
            now: megabytes("VmRSS")?,
            most: megabytes("VmHWM")?,
        })
    }

    /// Processor time that it has used.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        // Of each thread: nanoseconds on a core, nanoseconds waiting for one, turns. The ticks of /proc/PID/stat miss a
        // process that wakes for microseconds.
        let id = self.child.id().context("it has ended")?;
        let mut nanoseconds = 0;
        for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
            let times =
                std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            let used = times
                .split_whitespace()
                .next()
                .and_then(|field| field.parse::<u64>().ok());
            nanoseconds += used.unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        let id = self.child.id().context("it has ended")?;
        Ok(std::fs::read_to_string(format!("/proc/{id}/{file}"))?)
    }
}
