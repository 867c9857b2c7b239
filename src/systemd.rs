//! What systemd is told (`sd_notify(3)`): started, reading again, stopping, and that the loops turn. Without
//! `NOTIFY_SOCKET` in the environment it is told nothing.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::Arc,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

use crate::{config::Env, engine::Context, shutdown::Tasks};

/// How often it is told why work does not go on, if it does not.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// Beyond `shutdown_grace` a stop takes this long at most, where the database is away.
pub(crate) const STOP_MARGIN: Duration = Duration::from_secs(25);

/// The way to the service manager.
#[derive(Debug, Clone, Default)]
pub(crate) struct Systemd {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
    /// It ends the process where it hears nothing for so long.
    watchdog: Option<Duration>,
}

impl Systemd {
    /// As the environment says.
    pub(crate) fn of(env: Env<'_>) -> Self {
        let Some(name) = env("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let socket = open(&name).inspect_err(|error| {
            tracing::warn!(
                "NOTIFY_SOCKET={name} can't be used, so systemd is told nothing: {error}"
            );
        });
        let number = |name| env(name).and_then(|text| text.parse::<u64>().ok());
        let for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| for_us && *usec > 0);
        Self {
            socket: socket.ok().map(Arc::new),
            watchdog: watchdog.map(Duration::from_micros),
        }
    }

    /// All that a person might have to mend was looked at, or it waits for the database and will go on by itself.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The configuration is being read again. [`Self::ready`] ends that.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec / 1000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// It stops, within this grace and [`STOP_MARGIN`]; longer than the unit says where that is what is configured.
    pub(crate) fn stopping(&self, grace: Duration) {
        let usec = (grace + STOP_MARGIN).as_micros();
        self.tell(&format!(
            "STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={usec}"
        ));
    }

    /// Feeds the watchdog as long as the loops turn, and keeps the status up to date.
    pub(crate) fn watch(&self, tasks: &Tasks, context: &Arc<Context>, end: &CancellationToken) {
        if self.socket.is_none() {
            return;
        }
        let (systemd, context, ended) = (self.clone(), Arc::clone(context), end.clone());
        let half = self.watchdog.map(|watchdog| watchdog / 2);
        let interval = half.map_or(STATUS_INTERVAL, |half| half.min(STATUS_INTERVAL));
        tasks.spawn_loop("systemd", end.clone(), async move {
            let mut told = String::new();
            while !ended.is_cancelled() {
                let (alive, status) = sight(&context.stalled(), context.unready());
                if alive && systemd.watchdog.is_some() {
                    systemd.tell("WATCHDOG=1");
                }
                if status != told {
                    systemd.tell(&format!("STATUS={status}"));
                    told = status;
                }
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = tokio::time::sleep(interval) => {}
                }
            }
        });
    }

    /// A manager that does not listen at the moment misses it: nothing waits for it.
    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            let (socket, address) = &**socket;
            if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
                tracing::debug!("systemd did not hear {state:?}: {error}");
            }
        }
    }
}

/// Whether it lives, as `/livez` says, and what is to be known of it. A database that is away is no reason to end it: the
/// next one would wait for the same.
fn sight(stalled: &[&str], unready: Option<&str>) -> (bool, String) {
    if stalled.is_empty() {
        (
            true,
            unready.unwrap_or("claims and records work").to_owned(),
        )
    } else {
        let text = format!("these loops do not turn: {}", stalled.join(", "));
        (false, text)
    }
}

/// `@` begins the name of a socket that is not in the file system.
fn open(name: &str) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_while_the_loops_turn_and_no_longer() {
        let (alive, status) = sight(&[], None);
        assert!(alive, "{status}");
        let (alive, status) = sight(&[], Some("the database can't be reached"));
        assert!(alive, "{status}");
        assert_eq!(status, "the database can't be reached");
        let (alive, status) = sight(&["dispatcher", "prober"], Some("and more"));
        assert!(!alive, "{status}");
        assert_eq!(status, "these loops do not turn: dispatcher, prober");
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let watchdog = |pid: Option<u32>, usec: &'static str| {
            let env = move |name: &str| match name {
                "NOTIFY_SOCKET" => Some("/nowhere".to_owned()),
                "WATCHDOG_PID" => pid.map(|pid| pid.to_string()),
                "WATCHDOG_USEC" => Some(usec.to_owned()),
                _ => None,
            };
            Systemd::of(&env).watchdog
        };
        let half_a_minute = Some(Duration::from_secs(30));
        assert_eq!(watchdog(None, "30000000"), half_a_minute);
        assert_eq!(
            watchdog(Some(std::process::id()), "30000000"),
            half_a_minute
        );
        assert_eq!(watchdog(Some(1), "30000000"), None);
        assert_eq!(watchdog(None, "0"), None);
        assert_eq!(watchdog(None, "soon"), None);
    }
}
