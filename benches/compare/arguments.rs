//! What is asked for.

use clap::Parser;

/// All parts, in their order.
pub(crate) const PARTS: [&str; 11] = [
    "p1", "p2", "p3", "p4", "p5", "p6", "p8", "p9", "p10", "p11", "kill",
];

/// Measures leafhopper against its peers and against a bare loop, side by side on this machine.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Arguments {
    /// Parts: p1 to p11, kill; drain is p1 and p2, p7 is p1, p4 and p8. Without any: all.
    #[arg(value_delimiter = ',')]
    parts: Vec<String>,

    /// The same, as an option.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// Of leafhopper, `graphile_worker` (Rust), graphile-worker (Node), pg-boss, floor.
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,

    /// Calls of one round of p1, p5 and p6 in proportion.
    #[arg(long, default_value_t = 60_000)]
    pub(crate) calls: u64,

    /// Rounds of p1 and p2; the others take as many or fewer.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,

    /// Seconds of each measurement that lasts for a time.
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u64,

    /// Calls that wait behind those of p4, and that are finished already in p6.
    #[arg(long, default_value_t = 1_000_000)]
    many: u64,

    /// Ten times as many of these. Takes gigabytes and much longer.
    #[arg(long)]
    huge: bool,

    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    pub(crate) fn parts(&self) -> anyhow::Result<Vec<&'static str>> {
        let mut asked: Vec<&str> = Vec::new();
        for part in self.parts.iter().chain(&self.only) {
            match part.as_str() {
                "drain" => asked.extend(["p1", "p2"]),
                // The memory is taken from these.
                "p7" => asked.extend(["p1", "p4", "p8"]),
                known if PARTS.contains(&known) => asked.push(known),
                other => anyhow::bail!("there is no part {other}: {}", PARTS.join(", ")),
            }
        }
        let parts = PARTS.into_iter();
        Ok(parts
            .filter(|part| asked.is_empty() || asked.contains(part))
            .collect())
    }

    pub(crate) fn asks_for(&self, system: &str) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|asked| asked == system)
    }

    /// Rows that are there already, in the measurements of a long backlog and of a long history.
    pub(crate) fn many(&self) -> u64 {
        if self.huge { 10 * self.many } else { self.many }
    }
}
