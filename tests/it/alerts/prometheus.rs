//! Prometheus itself, as Debian has it: started, asked, killed; and promtool.
//!
//! `.ci/prometheus` gets both. Where `LEAFHOPPER_PROMETHEUS=required` (CI sets it once they are there) a missing one is
//! a failure. Else the test is not tried, and that is said past the capture of a test's output.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::Value;

use crate::{
    clients::not_tried,
    harness::{folder::Folder, wait::until},
};

/// Where `.ci/prometheus` unpacks it.
const LOCAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.prometheus/usr/bin");

/// The program of that name, if it is here.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::from(LOCAL)).chain(std::env::split_paths(&path));
    let found = folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        not_tried(name, ".ci/prometheus", "LEAFHOPPER_PROMETHEUS");
    }
    found
}

/// Runs promtool in that folder, with this to read.
pub(super) fn promtool(program: &Path, folder: &Path, words: &[&str], stdin: &str) -> Output {
    let mut command = Command::new(program);
    command.args(words).current_dir(folder);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that does not read is done already.
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

/// Labels by name.
pub(super) type Labels = BTreeMap<String, String>;

/// One alert that is pending or firing.
#[derive(Debug, Clone)]
pub(super) struct Alert {
    pub(super) labels: Labels,
    pub(super) annotations: Labels,
    pub(super) is_firing: bool,
}

impl Alert {
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// A running Prometheus; it is killed with this value, and its data goes with the folder.
pub(super) struct Prometheus {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    client: reqwest::Client,
    _folder: Folder,
}

impl Prometheus {
    /// One that scrapes these addresses as the job leafhopper, and evaluates these rules, twice a second.
    pub(super) fn start(program: &Path, addresses: &[&str], rules: &str) -> Self {
        let folder = Folder::new();
        folder.write("leafhopper.rules.yml", rules);
        let config = format!(
            "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [leafhopper.rules.yml]\n\
             scrape_configs:\n  \
             - {{ job_name: leafhopper, static_configs: [{{ targets: {addresses:?} }}] }}\n"
        );
        folder.write("prometheus.yml", &config);
        let mut child = Command::new(program)
            .args([
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--web.listen-address=127.0.0.1:0",
            ])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            child,
            log,
            client,
            _folder: folder,
        }
    }

    /// The series of an instant query now; a failure is what Prometheus says of it.
    pub(super) async fn query(&self, expression: &str) -> Result<Vec<(Labels, f64)>, String> {
        let data = self.api("query", &[("query", expression)]).await?;
        let result = data["result"].as_array().cloned().unwrap_or_default();
        let series = result.iter().map(|series| {
            let value = series["value"][1].as_str().unwrap_or_default();
            (labels(&series["metric"]), value.parse().unwrap())
        });
        Ok(series.collect())
    }

    /// The alerts that are pending or firing.
    pub(super) async fn alerts(&self) -> Result<Vec<Alert>, String> {
        let data = self.api("alerts", &[]).await?;
        let alerts = data["alerts"].as_array().cloned().unwrap_or_default();
        let alerts = alerts.iter().map(|alert| Alert {
            labels: labels(&alert["labels"]),
            annotations: labels(&alert["annotations"]),
            is_firing: alert["state"] == "firing",
        });
        Ok(alerts.collect())
    }

    /// Every rule as Prometheus has it.
    pub(super) async fn rules(&self) -> Result<Vec<Value>, String> {
        let data = self.api("rules", &[]).await?;
        let groups = data["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups
            .iter()
            .filter_map(|group| group["rules"].as_array().cloned());
        Ok(rules.flatten().collect())
    }

    async fn api(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let address = self.address().await;
        let url = format!("http://{address}/api/v1/{path}");
        let url = reqwest::Url::parse_with_params(&url, query).unwrap();
        let answer = self.client.get(url).send().await;
        let answer = answer.map_err(|error| format!("{error:?}"))?;
        let text = answer.text().await.map_err(|error| format!("{error:?}"))?;
        // Until it is ready it answers in plain words.
        let answer: Value =
            serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        if answer["status"] == "success" {
            Ok(answer["data"].clone())
        } else {
            Err(text)
        }
    }

    /// Where it listens; its log says so.
    async fn address(&self) -> String {
        until("Prometheus listens", async || {
            let log = self.log.lock().unwrap();
            let found = log.iter().find_map(|line| {
                let (_, address) = line.split_once("msg=\"Listening on\" address=")?;
                address.split_whitespace().next().map(str::to_owned)
            });
            found.ok_or_else(|| log.clone())
        })
        .await
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            let log = self.log.lock().unwrap();
            eprintln!("Prometheus' log:\n{}", log.join("\n"));
        }
    }
}

fn labels(object: &Value) -> Labels {
    let object = object.as_object().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    object
        .iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect()
}
