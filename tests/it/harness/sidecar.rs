//! The real binary as a process: started, asked, signalled, killed.

use std::{
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) use super::config::Config;
use super::{
    log::Log,
    wait::{LIMIT, until, until_within},
};

/// Says how the log is written; JSON where a test says nothing.
pub(crate) const LOG_FORMAT: &str = "LEAFHOPPER_LOG_FORMAT";

/// Says how much is logged.
pub(crate) const LOG_LEVEL: &str = "LEAFHOPPER_LOG_LEVEL";

/// Everything that leafhopper and the libraries can be made to say.
pub(crate) const LOUD: &str = "trace,tokio_postgres=trace,deadpool=trace,hyper=trace,hyper_util=trace,h2=trace,\
    reqwest=trace,rustls=trace,axum=trace,opentelemetry=trace";

/// A line of ours in the log: the address above it is that of the process before.
const STARTED_AGAIN: &str = "(started again by the test)";

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// How a sidecar is started.
#[derive(Debug)]
pub(crate) struct Starter {
    folder: PathBuf,
    environment: Vec<(String, String)>,
    /// The words before the binary's name.
    wrapper: Vec<String>,
}

impl Starter {
    /// With an empty folder of its own.
    pub(super) fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("leafhopper-sidecar-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self {
            folder,
            environment: Vec::new(),
            wrapper: Vec::new(),
        }
    }

    /// Has another program start it, which is what [`Sidecar::signal`] and the like then mean.
    pub(crate) fn under(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// A variable of its environment.
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn start(self) -> Sidecar {
        let sidecar = self.launch();
        sidecar.until_ready().await;
        sidecar
    }

    /// Starts it and does not wait: for one that can't become ready.
    pub(crate) fn launch(self) -> Sidecar {
        let log = Log::new(&self.folder.join("log"));
        let child = self.spawn(&log);
        Sidecar {
            starter: self,
            child,
            log,
            ended: None,
        }
    }

    /// Runs another of the binary's commands with the same configuration, to its end.
    pub(crate) async fn command(&self, arguments: &[&str]) -> Output {
        let mut command = self.binary(arguments);
        tokio::task::spawn_blocking(move || command.output())
            .await
            .unwrap()
            .unwrap()
    }

    /// Starts another of the binary's commands, with its output piped.
    pub(crate) fn piped(&self, arguments: &[&str]) -> Child {
        let mut command = self.binary(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Writes a configuration that [`Config`] can't say.
    pub(crate) fn rewrite_text(&self, text: &str) {
        std::fs::write(self.folder.join("leafhopper.toml"), text).unwrap();
    }

    /// Takes the configuration away.
    pub(crate) fn remove_file(&self) {
        std::fs::remove_file(self.folder.join("leafhopper.toml")).unwrap();
    }

    fn rewrite(&self, config: &Config) {
        self.rewrite_text(&config.text());
    }

    fn binary(&self, arguments: &[&str]) -> Command {
        let wrapper = self.wrapper.iter().map(String::as_str);
        let mut words = wrapper.chain([env!("CARGO_BIN_EXE_leafhopper")]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(arguments)
            .arg("--config")
            .arg(self.folder.join("leafhopper.toml"))
            .current_dir(&self.folder)
            // What the developer's shell has set must not change a test.
            .env_remove("DATABASE_URL")
            .env_remove("LEAFHOPPER_CONFIG")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command
    }

    fn spawn(&self, log: &Log) -> Child {
        let mut command = self.binary(&["run"]);
        if !self.environment.iter().any(|(name, _)| name == LOG_FORMAT) {
            command.env(LOG_FORMAT, "json");
        }
        command.stdout(Stdio::null()).stderr(log.stdio());
        command.spawn().unwrap()
    }
}

/// A sidecar's process; it is killed with this value, and a failing test shows the end of its log.
#[derive(Debug)]
pub(crate) struct Sidecar {
    starter: Starter,
    child: Child,
    log: Log,
    ended: Option<ExitStatus>,
}

impl Sidecar {
    /// Waits until `/readyz` says yes.
    pub(crate) async fn until_ready(&self) {
        until("the sidecar is ready", async || {
            let Some(address) = self.find_address() else {
                return Err(self.log_tail());
            };
            match get(&format!("http://{address}/readyz")).await {
                Ok((200, _)) => Ok(()),
                Ok((status, body)) => Err(format!("{status}: {body}\n{}", self.log_tail())),
                Err(error) => Err(format!("{error:?}\n{}", self.log_tail())),
            }
        })
        .await;
    }

    /// The url of its listener, with a path.
    pub(crate) fn url(&self, path: &str) -> String {
        let address = self.find_address();
        let address = address.unwrap_or_else(|| panic!("no address in:\n{}", self.log_tail()));
        format!("http://{address}{path}")
    }

    /// GETs from its listener: status and body.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        get(&self.url(path)).await.unwrap()
    }

    /// The sum of a metric's series that carry all these labels, such as `leaf="git"`; none is 0.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (status, body) = self.get("/metrics").await;
        assert_eq!(status, 200, "{body}");
        sum_of(&body, name, labels)
    }

    /// Waits until that sum is this number: what is counted is counted after its commit.
    pub(crate) async fn until_metric(&self, name: &str, labels: &[&str], wanted: f64) {
        until(&format!("{name} {labels:?} is {wanted}"), async || {
            let found = self.metric(name, labels).await;
            if (found - wanted).abs() < f64::EPSILON {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    }

    /// SIGKILL: no goodbye. Gives how it ended: by this, unless it had ended before.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        let status = self.child.wait().unwrap();
        self.ended = Some(status);
        status
    }

    /// SIGTERM, SIGHUP, SIGSTOP, SIGCONT …
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The process, or what started it.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// SIGTERM, and its exit status.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.exit().await
    }

    /// Waits for its end.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        self.exit_within(LIMIT).await
    }

    /// The same, for one that has a long way to its end.
    pub(crate) async fn exit_within(&mut self, limit: Duration) -> ExitStatus {
        let Self {
            starter,
            child,
            log,
            ended,
        } = self;
        if let Some(status) = ended {
            return *status;
        }
        let what = format!("the sidecar ends, {:?}", starter.environment);
        let status = until_within(limit, &what, async || match child.try_wait().unwrap() {
            Some(status) => Ok(status),
            None => Err(log.tail()),
        })
        .await;
        *ended = Some(status);
        status
    }

    /// Starts it again, after its end.
    pub(crate) async fn restart(&mut self) {
        self.relaunch();
        self.until_ready().await;
    }

    /// Starts it again, after its end, and does not wait.
    pub(crate) fn relaunch(&mut self) {
        assert!(self.ended.is_some(), "it has not ended");
        self.log.push(STARTED_AGAIN);
        self.child = self.starter.spawn(&self.log);
        self.ended = None;
    }

    /// Writes another configuration, and leaves it to the caller to have it read.
    pub(crate) fn rewrite(&self, config: &Config) {
        self.starter.rewrite(config);
    }

    /// Runs another command with its configuration.
    pub(crate) async fn command(&self, arguments: &[&str]) -> Output {
        self.starter.command(arguments).await
    }

    /// Whether a signal has stopped it (`proc(5)`, the state `T`).
    pub(crate) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T'))
    }

    /// The most memory that it has had at once, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap() * 1024
    }

    /// Its log so far; lines that are not JSON are strings.
    pub(crate) fn log(&self) -> Vec<Value> {
        let lines = self.lines().into_iter();
        lines
            .map(|line| serde_json::from_str(&line).unwrap_or(line.into()))
            .collect()
    }

    /// The lines of its log so far, as they were written.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.log.read(<[String]>::to_vec)
    }

    /// Waits until a line of its log has these words.
    pub(crate) async fn until_log(&self, words: &str) {
        until(&format!("the log says {words}"), async || {
            let lines = self.lines();
            let said = lines.iter().any(|line| line.contains(words));
            if said { Ok(()) } else { Err(lines) }
        })
        .await;
    }

    fn find_address(&self) -> Option<String> {
        self.log.read(address_in)
    }

    fn log_tail(&self) -> String {
        self.log.tail()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
        if std::thread::panicking() {
            eprintln!("the end of the sidecar's log:\n{}", self.log_tail());
        }
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// The address that the latest start has bound: the field `listen.address` of one of its lines.
fn address_in(log: &[String]) -> Option<String> {
    let latest = log.rsplit(|line| line == STARTED_AGAIN).next()?;
    latest.iter().find_map(|line| {
        let (_, of_text) = line.split_once(" listen.address=").unwrap_or_default();
        let of_text = of_text.split(' ').next().filter(|it| !it.is_empty());
        let json: Value = serde_json::from_str(line).unwrap_or_default();
        let found = json["listen.address"].as_str().or(of_text);
        found.map(str::to_owned)
    })
}

async fn get(url: &str) -> reqwest::Result<(u16, String)> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()?;
    let response = client.get(url).send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

fn sum_of(exposition: &str, name: &str, labels: &[&str]) -> f64 {
    let series = exposition.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, its_labels) = series.split_once('{').unwrap_or((series, ""));
        let is_meant = found == name && labels.iter().all(|label| its_labels.contains(label));
        is_meant.then(|| value.parse::<f64>().unwrap())
    });
    series.sum()
}

#[test]
fn a_metric_is_the_sum_of_its_series() {
    let text = "# TYPE a counter\na{leaf=\"x\",class=\"retry\"} 2\na{leaf=\"y\",class=\"retry\"} 3\nab 9\n";
    assert!((sum_of(text, "a", &["class=\"retry\""]) - 5.0).abs() < f64::EPSILON);
    assert!((sum_of(text, "a", &["leaf=\"y\""]) - 3.0).abs() < f64::EPSILON);
    assert!(sum_of(text, "b", &[]).abs() < f64::EPSILON);
}

#[test]
fn the_address_is_that_of_the_latest_start() {
    let line = |port: u16| {
        let address = format!("127.0.0.1:{port}");
        serde_json::json!({ "level": "INFO", "listen.address": address }).to_string()
    };
    let mut log = vec!["not JSON".to_owned(), line(1), STARTED_AGAIN.to_owned()];
    assert_eq!(address_in(&log), None);
    log.push(line(2));
    assert_eq!(address_in(&log).as_deref(), Some("127.0.0.1:2"));
    log.push("… INFO leafhopper::app: hears listen.address=127.0.0.1:3 instance.id=a".to_owned());
    assert_eq!(address_in(&log[3..]).as_deref(), Some("127.0.0.1:2"));
    assert_eq!(address_in(&log[4..]).as_deref(), Some("127.0.0.1:3"));
}

#[test]
fn a_configuration_is_toml_with_its_leaves() {
    let config = Config::new("postgres://u:p@h/d")
        .leaf("a", "http://a", "timeout = \"1s\"")
        .dispatch("lease = \"2s\"")
        .toml("[leaf.a.probe]\npath = \"/x\"");
    let parsed: toml::Table = toml::from_str(&config.text()).unwrap();
    assert_eq!(parsed["listen"]["address"].as_str(), Some("127.0.0.1:0"));
    assert_eq!(parsed["dispatch"]["lease"].as_str(), Some("2s"));
    assert_eq!(parsed["leaf"]["a"]["timeout"].as_str(), Some("1s"));
    assert_eq!(parsed["leaf"]["a"]["probe"]["path"].as_str(), Some("/x"));
}
