//! PgBouncer itself, as Debian has it: started, and ended.
//!
//! `.ci/pgbouncer` gets it. Where `LEAFHOPPER_POOLER=required` (CI sets it once it is there) a missing one is a failure.
//! Else the test is not tried, and that is said past the capture of a test's output.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use crate::{
    clients::not_tried,
    harness::{folder::Folder, wait::until},
};

/// Where `.ci/pgbouncer` puts it.
const LOCAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.pgbouncer/bin");

/// As Debian's package installs it, which is in the `PATH` of root alone.
const DEBIAN: &str = "/usr/sbin";

/// The program, if it is here.
pub(super) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = [LOCAL, DEBIAN].map(PathBuf::from).into_iter();
    let mut files = known
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join("pgbouncer"));
    let found = files.find(|file| file.is_file());
    if found.is_none() {
        not_tried("PgBouncer", ".ci/pgbouncer", "LEAFHOPPER_POOLER");
    }
    found
}

/// When a client's connection gets another server's session.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    /// With its first statement, for as long as it stays.
    Session,
    /// With each transaction.
    Transaction,
}

/// Whether a client may say settings of the session as it connects.
#[derive(Debug, Clone, Copy)]
pub(super) enum Options {
    /// That is an error, as where the pooler is configured no further.
    Refused,
    /// They are dropped in silence.
    Ignored,
}

/// A running PgBouncer; it is killed with this value.
pub(super) struct Bouncer {
    child: Child,
    url: String,
    log: Arc<Mutex<Vec<String>>>,
    _folder: Folder,
}

impl Bouncer {
    /// In front of the database of that url, with so many sessions there for everybody together.
    pub(super) async fn start(
        program: PathBuf,
        database_url: &str,
        sessions: usize,
        (mode, options): (Mode, Options),
    ) -> Self {
        let folder = Folder::new();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let config = config(database_url, port, sessions, (mode, options));
        let file = folder.write("pgbouncer.ini", &config);
        let mut command = Command::new(program);
        command.arg(file).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            // It refuses to run as root.
            command.args(["-u", "nobody"]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        let mut url = reqwest::Url::parse(database_url).unwrap();
        url.set_port(Some(port)).unwrap();
        until("PgBouncer takes connections", async || {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
            connected
                .map(drop)
                .map_err(|_source| log.lock().unwrap().clone())
        })
        .await;
        let url = url.into();
        Self {
            child,
            url,
            log,
            _folder: folder,
        }
    }

    /// The database's url, through it.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

fn config(
    database_url: &str,
    port: u16,
    sessions: usize,
    (mode, options): (Mode, Options),
) -> String {
    let url = reqwest::Url::parse(database_url).unwrap();
    let name = url.path().trim_start_matches('/');
    let (server, user, password) = (url.port().unwrap(), url.username(), url.password().unwrap());
    let mode = match mode {
        Mode::Session => "session",
        Mode::Transaction => "transaction",
    };
    let ignored = match options {
        Options::Refused => "",
        Options::Ignored => "ignore_startup_parameters = options\n",
    };
    format!(
        "[databases]\n{name} = host=127.0.0.1 port={server} dbname={name} user={user} password={password}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = any\npool_mode = {mode}\ndefault_pool_size = {sessions}\nmax_client_conn = 200\n{ignored}"
    )
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("PgBouncer said:\n{}", self.log.lock().unwrap().join("\n"));
        }
    }
}
