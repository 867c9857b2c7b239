//! A throw-away PostgreSQL server: started from the programs of this machine, gone with its owner.
//!
//! What it promises: it listens on 127.0.0.1 only and asks for a random password; its files lie in a folder
//! that no other user can enter; when the [`Cluster`] is dropped, or its owner dies in whatever way, the server
//! stops and the folder goes.
//!
//! The last part is a watchdog's work: a small shell that waits for the end of a pipe of which the owner holds
//! the other end. The kernel closes that end whatever kills the owner, SIGKILL included. (Where it dies before the
//! server has started, within `initdb`'s second, the files stay until the same user starts the next one.)
//!
//! Everything here blocks for up to some seconds; asynchronous callers use `spawn_blocking`.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustix::process::Signal;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    binaries::Binaries,
    error::{failed_to, tail},
    place::{self, User},
    server::Server,
};
use crate::domain::signature::hmac;

pub use super::error::ClusterError;

/// Below the ports that Linux gives to outgoing connections, so that none of them takes the port of a server
/// that is about to restart.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Another process can take the port between the choice and the start.
const PORT_TRIES: usize = 10;

/// What a server is to be like.
#[derive(Debug, Clone)]
pub struct Options {
    /// The programs to run.
    pub binaries: Binaries,
    /// Whether a commit waits for the disk.
    pub durability: Durability,
    /// Further settings, as `postgres -c name=value` takes them.
    pub settings: Vec<(String, String)>,
}

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It does, as in production: for the demo and for benchmarks.
    Synced,
    /// It does not: for tests. A crash of the server loses nothing, a crash of the machine everything.
    Unsynced,
}

/// A running server, and the folder that it lives in.
#[derive(Debug)]
pub struct Cluster {
    options: Options,
    user: Option<User>,
    folder: PathBuf,
    port: u16,
    password: String,
    server: Option<Server>,
}

impl Cluster {
    /// Makes the files of a new server and starts it.
    ///
    /// # Errors
    ///
    /// With the end of what PostgreSQL said, where it said something.
    pub fn start(options: Options) -> Result<Self, ClusterError> {
        let user = User::to_become().map_err(failed_to("choose a user for the server"))?;
        place::sweep(user);
        let unique = Uuid::new_v4().simple().to_string();
        let folder = place::create(user, &unique[..12])
            .map_err(failed_to("make a folder for the server"))?;
        let password = Uuid::new_v4().simple().to_string();
        // From here on, a failure drops the cluster, and with it the folder.
        let mut cluster = Self {
            options,
            user,
            folder,
            port: 0,
            password,
            server: None,
        };
        cluster.initialise()?;
        let mut tries_left = PORT_TRIES;
        loop {
            cluster.port = free_port().map_err(failed_to("find a free port on 127.0.0.1"))?;
            tries_left -= 1;
            match cluster.launch() {
                Err(ClusterError::EndedEarly { log, .. }) if tries_left > 0 && port_taken(&log) => {
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(cluster),
            }
        }
    }

    /// The superuser's connection string for one of the databases; `postgres` exists from the start.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres:{}@127.0.0.1:{}/{database}",
            self.password, self.port
        )
    }

    /// The port that it keeps through every restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The end of the server's log.
    pub fn log_tail(&self) -> String {
        tail(&fs::read_to_string(self.folder.join("log")).unwrap_or_default())
    }

    /// Stops it as a crash would: no checkpoint, every connection gone, recovery at the next start.
    ///
    /// # Errors
    ///
    /// If the server can't be waited for.
    pub fn stop_immediate(&mut self) -> Result<(), ClusterError> {
        self.stop(Signal::QUIT)
    }

    /// Starts it on the same port with the same files; one that still runs is stopped in good order first.
    ///
    /// # Errors
    ///
    /// With the end of the server's log.
    pub fn restart(&mut self) -> Result<(), ClusterError> {
        self.stop(Signal::INT)?;
        self.launch()
    }

    /// Lets this run of the server go on when this process ends without dropping the cluster.
    ///
    /// For somebody who wants to look into it. The next start of a cluster by the same user sweeps it away.
    pub fn outlive_owner(&mut self) {
        if let Some(server) = &mut self.server {
            server.let_go();
        }
    }

    /// Makes a database, as a copy of `template` if one is given.
    ///
    /// # Errors
    ///
    /// With what `psql` said.
    pub fn create_database(&self, name: &str, template: Option<&str>) -> Result<(), ClusterError> {
        let mut sql = format!("CREATE DATABASE {}", quoted(name));
        if let Some(template) = template {
            sql.push_str(" TEMPLATE ");
            sql.push_str(&quoted(template));
        }
        let mut psql = Command::new(self.options.binaries.program("psql"));
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--no-password",
            "--set=ON_ERROR_STOP=1",
        ])
        .arg(format!("--dbname={}", self.url("postgres")))
        .arg(format!("--command={sql}"));
        run("psql", &mut psql)
    }

    fn initialise(&self) -> Result<(), ClusterError> {
        let password_file = self.folder.join("password");
        fs::write(
            &password_file,
            verifier(&self.password, Uuid::new_v4().as_bytes()),
        )
        .and_then(|()| fs::set_permissions(&password_file, fs::Permissions::from_mode(0o644)))
        .map_err(failed_to("write the password's file"))?;
        let mut initdb = Command::new(self.options.binaries.program("initdb"));
        initdb
            .args([
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ])
            // The server checks it, so a client spares the exchange; the password does not leave the machine.
            .arg("--auth=password")
            .arg(format!("--pwfile={}", password_file.display()))
            .arg(format!("--pgdata={}", self.data().display()));
        let made = run(
            "initdb",
            User::applied(self.user, initdb.current_dir(&self.folder)),
        );
        place::remove_file(&password_file);
        made
    }

    fn launch(&mut self) -> Result<(), ClusterError> {
        let mut postgres = Command::new(self.options.binaries.program("postgres"));
        postgres.arg("-D").arg(self.data());
        for (name, value) in self.settings() {
            postgres.arg("-c").arg(format!("{name}={value}"));
        }
        self.server = Some(Server::start(&self.folder, self.user, &postgres)?);
        Ok(())
    }

    fn stop(&mut self, signal: Signal) -> Result<(), ClusterError> {
        match self.server.take() {
            Some(server) => server.stop(signal),
            None => Ok(()),
        }
    }

    fn settings(&self) -> Vec<(String, String)> {
        let fsync = match self.options.durability {
            Durability::Synced => "on",
            Durability::Unsynced => "off",
        };
        let mut settings: Vec<(String, String)> = [
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", ""),
            ("fsync", fsync),
            ("max_connections", "300"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        settings.push(("port".to_owned(), self.port.to_string()));
        settings.extend(self.options.settings.iter().cloned());
        settings
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nobody reads its files again, so they need not be in order.
        self.stop(Signal::QUIT).ok();
        place::remove(&self.folder);
    }
}

fn free_port() -> io::Result<u16> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..PORT_TRIES {
        let [a, b, ..] = *Uuid::new_v4().as_bytes();
        let port = PORTS.start + u16::from_be_bytes([a, b]) % (PORTS.end - PORTS.start);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn port_taken(log: &str) -> bool {
    log.contains("could not bind") || log.contains("could not create any TCP/IP sockets")
}

fn run(program: &'static str, command: &mut Command) -> Result<(), ClusterError> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| {
        let package = if program == "psql" {
            "postgresql-client"
        } else {
            "postgresql"
        };
        let what = format!("run {program}, which is in Debian's package {package}");
        ClusterError::Io { what, source }
    })?;
    if output.status.success() {
        return Ok(());
    }
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(ClusterError::Failed {
        program,
        status: output.status,
        said: tail(&said),
    })
}

/// What PostgreSQL keeps of a password to check it by (chapter 53.8, `pg_authid`; RFC 5802, section 3), after one round of
/// hashing. The usual 4,096 are against guessing, which a random password needs nothing against, and each connection would
/// pay for them: a tenth of all that the tests do.
fn verifier(password: &str, salt: &[u8]) -> String {
    let salted = hmac(password.as_bytes(), &[salt, &1_u32.to_be_bytes()]);
    let stored_key = Sha256::digest(hmac(&salted, &[b"Client Key"]));
    let server_key = hmac(&salted, &[b"Server Key"]);
    let [salt, stored_key, server_key] =
        [salt, &stored_key, &server_key].map(|bytes| BASE64_STANDARD.encode(bytes));
    format!("SCRAM-SHA-256$1:{salt}${stored_key}:{server_key}")
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}
