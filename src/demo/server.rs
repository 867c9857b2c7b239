//! One run of the PostgreSQL server, and the watchdog that stops it when its owner dies.

use std::{
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    error::{ClusterError, failed_to, tail},
    place::User,
};

/// How often a state that only a file or a process shows is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A start that recovers from a crash on a busy machine takes seconds; one that takes longer is stuck.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// `$1` is the folder; the server's command follows.
///
/// The shell becomes the server, so that the owner's child is the server itself. The watchdog is a grandchild
/// (the server must not have a child that it does not know) in the same process group of its own, where a
/// Ctrl-C at the owner's terminal does not reach it. A line on the pipe lets the watchdog go.
const WATCHED: &str = r#"
folder=$1
shift
server=$$
exec 3<&0 </dev/null
(
  (
    if read -r _ <&3; then exit 0; fi
    trap '' HUP INT TERM
    kill -QUIT "$server" 2>/dev/null
    looks=200
    while [ "$looks" -gt 0 ] && kill -0 "$server" 2>/dev/null; do
      looks=$((looks - 1))
      sleep 0.05
    done
    kill -KILL "$server" 2>/dev/null
    rm -rf -- "$folder"
  ) >/dev/null 2>&1 &
)
exec "$@" 3<&-
"#;

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// Its end is the watchdog's signal.
    watchdog: ChildStdin,
}

impl Server {
    /// Runs `postgres` on the files in `folder`, and waits until it takes connections.
    pub(super) fn start(
        folder: &Path,
        user: Option<User>,
        postgres: &Command,
    ) -> Result<Self, ClusterError> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(folder.join("log"));
        let log = log.map_err(failed_to("open the server's log"))?;
        let errors = log
            .try_clone()
            .map_err(failed_to("open the server's log"))?;
        let log_begin = log.metadata().map_or(0, |meta| meta.len());
        let mut command = Command::new("sh");
        command
            .args(["-c", WATCHED, "sh"])
            .arg(folder)
            .arg(postgres.get_program())
            .args(postgres.get_args())
            .current_dir(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(errors);
        let mut child = User::applied(user, &mut command)
            .spawn()
            .map_err(failed_to("start the PostgreSQL server"))?;
        let watchdog = child.stdin.take().expect("its standard input is a pipe");
        let server = Self { child, watchdog };
        server.when_ready(folder, log_begin)
    }

    fn when_ready(mut self, folder: &Path, log_begin: u64) -> Result<Self, ClusterError> {
        let log = || log_since(folder, log_begin);
        for _ in 0..READY_WITHIN.as_millis() / LOOK_EVERY.as_millis() {
            let ended = self
                .child
                .try_wait()
                .map_err(failed_to("look after the server"))?;
            if let Some(status) = ended {
                self.let_go();
                return Err(ClusterError::EndedEarly { status, log: log() });
            }
            if says_ready(&folder.join("data"), self.child.id()) {
                return Ok(self);
            }
            pause();
        }
        self.stop(Signal::QUIT)?;
        Err(ClusterError::NotReady {
            waited: READY_WITHIN,
            log: log(),
        })
    }

    /// Stops it, and leaves the files.
    pub(super) fn stop(mut self, signal: Signal) -> Result<(), ClusterError> {
        // It may have ended by itself; then only the waiting is left.
        kill_process(Pid::from_child(&self.child), signal).ok();
        self.child
            .wait()
            .map_err(failed_to("wait for the end of the server"))?;
        self.let_go();
        Ok(())
    }

    /// Sends the watchdog away: the server has ended, or is to go on without an owner.
    pub(super) fn let_go(&mut self) {
        self.watchdog.write_all(b"ended\n").ok();
    }
}

/// The server keeps its state in the eighth line of its lock file, where `pg_ctl` reads it, too.
fn says_ready(data: &Path, pid: u32) -> bool {
    let file = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let mut lines = file.lines();
    // A crash leaves the file of the server before.
    let is_its_own = lines
        .next()
        .is_some_and(|line| line.trim() == pid.to_string());
    // A standby that takes connections says so in another way (miscadmin.h).
    is_its_own
        && lines
            .nth(6)
            .is_some_and(|line| ["ready", "standby"].contains(&line.trim()))
}

fn log_since(folder: &Path, begin: u64) -> String {
    let log = fs::read(folder.join("log")).unwrap_or_default();
    let begin = usize::try_from(begin).unwrap_or(0).min(log.len());
    tail(&String::from_utf8_lossy(&log[begin..]))
}

#[expect(clippy::disallowed_methods, reason = "this module blocks, and says so")]
fn pause() {
    std::thread::sleep(LOOK_EVERY);
}
