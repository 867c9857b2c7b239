//! Where it was measured.

use std::fmt;

use serde::Serialize;
use tokio_postgres::Client;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    date: String,
    cores: usize,
    processor: String,
    memory_gib: f64,
    kernel: String,
    postgres: String,
    /// What differs from the server's own defaults.
    settings: Vec<String>,
}

impl Machine {
    pub(crate) async fn look(admin: &Client) -> anyhow::Result<Self> {
        let version = admin.query_one("SHOW server_version", &[]).await?.get(0);
        let settings = admin
            .query(
                "SELECT name || ' = ' || current_setting(name) FROM pg_settings \
                  WHERE source = 'command line' AND name NOT IN ('port', 'listen_addresses', 'unix_socket_directories') \
                     OR name IN ('fsync', 'synchronous_commit', 'shared_buffers', 'max_wal_size') ORDER BY 1",
                &[],
            )
            .await?;
        let memory = read("/proc/meminfo");
        let memory = memory
            .split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<f64>().ok());
        let cpu = read("/proc/cpuinfo");
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        Ok(Self {
            date: jiff::Timestamp::now().strftime("%F %T UTC").to_string(),
            cores: std::thread::available_parallelism()?.get(),
            processor: model
                .unwrap_or("unknown")
                .trim_start_matches(['\t', ':', ' '])
                .to_owned(),
            memory_gib: memory.unwrap_or_default() / f64::from(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            postgres: version,
            settings: settings.iter().map(|row| row.get(0)).collect(),
        })
    }
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} cores ({}), {:.0} GiB, Linux {}, PostgreSQL {} ({})",
            self.date,
            self.cores,
            self.processor,
            self.memory_gib,
            self.kernel,
            self.postgres,
            self.settings.join(", ")
        )
    }
}
