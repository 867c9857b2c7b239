//! `check`: is everything well that a running sidecar needs?
//!
//! It changes nothing, and sends no request to a leaf: what it does there is to connect.

use std::path::Path;

use clap::Args;
use serde::Serialize;
use uuid::Uuid;

use super::{
    Exit,
    output::{Colour, Out},
    settings,
};
use crate::{
    config::{Config, ConfigError, Database, Leaf},
    present::text::clean,
    store::{Store, operator::health::OLDEST_SERVER, wakeup::Listener},
};

/// `check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// As an array of objects: check, subject, status, message.
    #[arg(long)]
    json: bool,
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    subject: String,
    status: Status,
    message: String,
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(
        &mut self,
        check: &'static str,
        subject: impl Into<String>,
        status: Status,
        message: impl Into<String>,
    ) {
        self.0.push(Finding {
            check,
            subject: subject.into(),
            status,
            message: message.into(),
        });
    }
}

/// Looks at everything, and says how it is.
pub(crate) async fn check(
    args: &CheckArgs,
    path: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    let config = configuration(path, &mut findings);
    let database = match &config {
        Some(config) => Some(config.database.clone()),
        // Its faults are among those that are told already.
        None => settings::database_only(path).ok(),
    };
    match database {
        Some(config) => look_at_database(&config, &mut findings).await,
        None => findings.add(
            "database",
            "",
            Status::Fail,
            "not looked at: see the configuration",
        ),
    }
    if let Some(config) = &config {
        let reached = config
            .leaves
            .values()
            .map(|leaf| async move { (leaf.name.clone(), reach(leaf).await) });
        for (name, result) in futures_util::future::join_all(reached).await {
            match result {
                Ok(message) => findings.add("leaf", name, Status::Ok, message),
                Err(problem) => findings.add("leaf", name, Status::Fail, problem),
            }
        }
    }
    // What has to be mended stands where it is read first: at the end.
    findings
        .0
        .sort_by_key(|finding| finding.status == Status::Fail);
    tell(&findings.0, args.json, out)?;
    let failed = findings.0.iter().any(|f| f.status == Status::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

fn configuration(path: &Path, findings: &mut Findings) -> Option<Config> {
    const CHECK: &str = "configuration";
    let file = path.display().to_string();
    match settings::whole(path) {
        Ok(config) => {
            let leaves = crate::present::text::counted(config.leaves.len(), "leaf");
            let leaves = leaves.replace("leafs", "leaves");
            findings.add(CHECK, file, Status::Ok, leaves);
            for warning in merged(&config.warnings) {
                findings.add(CHECK, "", Status::Warn, warning);
            }
            Some(config)
        }
        Err(error) => {
            faults(&error, findings);
            None
        }
    }
}

/// Warnings of several leaves that differ in the leaf alone are one line.
fn merged(warnings: &[String]) -> Vec<String> {
    let mut lines: Vec<(Vec<&str>, &str)> = Vec::new();
    for warning in warnings {
        let (key, text) = warning.split_once(": ").unwrap_or(("", warning));
        let is_of_a_leaf = key.starts_with("leaf.");
        let setting = |key: &str| key.rsplit('.').next().map(str::to_owned);
        let same = lines.iter_mut().find(|(keys, known)| {
            let first = keys.first().copied().unwrap_or_default();
            is_of_a_leaf
                && *known == text
                && first.starts_with("leaf.")
                && setting(first) == setting(key)
        });
        match same {
            Some((keys, _)) => keys.push(key),
            None => lines.push((vec![key], text)),
        }
    }
    let lines = lines.into_iter();
    lines
        .map(|(keys, text)| match keys.as_slice() {
            [""] => text.to_owned(),
            keys => format!("{}: {text}", keys.join(", ")),
        })
        .collect()
}

fn faults(error: &ConfigError, findings: &mut Findings) {
    for fault in &error.faults {
        let file = error.file.display();
        let place = match fault.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_string(),
        };
        let message = if fault.key.is_empty() {
            fault.problem.clone()
        } else {
            format!("{}: {}", fault.key, fault.problem)
        };
        findings.add("configuration", place, Status::Fail, message);
    }
}

async fn look_at_database(database: &Database, findings: &mut Findings) {
    const CHECK: &str = "database";
    let store = match settings::open(database) {
        Ok(store) => store,
        Err(error) => {
            findings.add(CHECK, "", Status::Fail, format!("{error:#}"));
            return;
        }
    };
    let server = match store.server().await {
        Ok(server) => server,
        Err(error) => {
            findings.add(CHECK, "server", Status::Fail, error.to_string());
            return;
        }
    };
    let (status, more) = if server.number < OLDEST_SERVER {
        (Status::Fail, "; version 14 or later is needed")
    } else if server.standby {
        (
            Status::Fail,
            "; it is a standby: name the primary, or several hosts",
        )
    } else if server.read_only {
        (
            Status::Fail,
            "; it refuses writes (default_transaction_read_only)",
        )
    } else {
        (Status::Ok, ", takes writes")
    };
    let way = server.tls.as_deref().unwrap_or("no TLS");
    let message = format!(
        "PostgreSQL {} as role {}; it sees {way}{more}",
        server.version, server.role
    );
    findings.add(CHECK, "server", status, message);
    match store.check_schema().await {
        Ok(version) => findings.add(CHECK, "schema", Status::Ok, format!("version {version}")),
        Err(error) => {
            findings.add(CHECK, "schema", Status::Fail, error.to_string());
            return;
        }
    }
    rights(&store, findings).await;
    identity(&store, findings).await;
    notifications(database, &store, findings).await;
}

/// Without them calls are found by polling.
async fn notifications(database: &Database, store: &Store, findings: &mut Findings) {
    let heard = async {
        let direct = settings::direct(database)?;
        let (mut listener, driver) = Listener::connect(&direct, Uuid::new_v4()).await?;
        tokio::select! {
            heard = listener.subscribe(store) => Ok::<_, anyhow::Error>(heard?),
            () = driver => anyhow::bail!("the connection that listens broke"),
        }
    };
    let (status, message) = match (heard.await, &database.direct_url) {
        (Ok(true), _) => (Status::Ok, "arrive".to_owned()),
        (Ok(false), None) => (
            Status::Warn,
            "do not arrive, as behind a transaction pooler: calls are found by polling alone, within \
             poll_interval; database.direct_url mends it"
                .to_owned(),
        ),
        (Ok(false), Some(_)) => (
            Status::Warn,
            "do not arrive: database.direct_url leads through a transaction pooler, or to another database than \
             database.url"
                .to_owned(),
        ),
        (Err(error), _) => (Status::Fail, format!("{error:#}")),
    };
    findings.add("database", "notifications", status, message);
}

async fn rights(store: &Store, findings: &mut Findings) {
    const CHECK: &str = "database";
    match store.missing_rights().await {
        Ok(missing) if missing.is_empty() => {
            findings.add(CHECK, "rights", Status::Ok, "all that a sidecar needs");
        }
        Ok(missing) => {
            let message = format!("the role lacks {}", missing.join(", "));
            findings.add(CHECK, "rights", Status::Fail, message);
        }
        Err(error) => findings.add(CHECK, "rights", Status::Fail, error.to_string()),
    }
}

async fn identity(store: &Store, findings: &mut Findings) {
    const CHECK: &str = "database";
    let origin = match store.origin().await {
        Ok(origin) => origin,
        Err(error) => {
            findings.add(CHECK, "identity", Status::Fail, error.to_string());
            return;
        }
    };
    let (status, message) = match (&origin.change, origin.difference()) {
        (Some(change), _) => (
            Status::Fail,
            format!(
                "{change}; nothing is sent until: leafhopper resume --all --as probe|resend --reason …"
            ),
        ),
        (None, Some(difference)) if origin.only_timeline_differs() => {
            let message = format!("{difference}; a promotion, which a running instance judges");
            (Status::Warn, message)
        }
        (None, Some(difference)) => (Status::Fail, difference),
        (None, None) if origin.was.is_none() => (
            Status::Ok,
            format!("{}; no instance has run here yet", origin.is),
        ),
        (None, None) => (Status::Ok, origin.is.to_string()),
    };
    findings.add(CHECK, "identity", status, message);
}

/// Connects to the leaf, or to the proxy on the way to it. Nothing is sent.
async fn reach(leaf: &Leaf) -> Result<String, String> {
    let reached = crate::leaf::reach(leaf).await?;
    let has_token = leaf.auth.is_some();
    let untried = if has_token || !leaf.secrets.names().is_empty() {
        "; no token was tried"
    } else {
        ""
    };
    Ok(format!("{reached}{untried}"))
}

fn tell(findings: &[Finding], json: bool, out: &mut Out<'_>) -> anyhow::Result<()> {
    if json {
        return Ok(out.json(&findings)?);
    }
    for finding in findings {
        let status = match finding.status {
            Status::Ok => out.paint(Colour::Green, "ok  "),
            Status::Warn => out.paint(Colour::Yellow, "warn"),
            Status::Fail => out.paint(Colour::Red, "fail"),
        };
        let subject = if finding.subject.is_empty() {
            String::new()
        } else {
            format!(" {}", clean(&finding.subject))
        };
        writeln!(
            out.out,
            "{status} {}{subject}: {}",
            finding.check,
            clean(&finding.message)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_that_differ_in_the_leaf_alone_are_one_line() {
        let warnings = [
            "leaf.git.outcome: say so",
            "leaf.git.probe: has no `found`",
            "leaf.mail.outcome: say so",
            "listen.address: can be reached",
        ]
        .map(str::to_owned);
        assert_eq!(
            merged(&warnings),
            [
                "leaf.git.outcome, leaf.mail.outcome: say so",
                "leaf.git.probe: has no `found`",
                "listen.address: can be reached",
            ]
        );
    }

    #[test]
    fn a_finding_is_one_line_without_colours_in_a_pipe() {
        let finding = |status, subject: &str| Finding {
            check: "leaf",
            subject: subject.to_owned(),
            status,
            message: "two\nlines".to_owned(),
        };
        let findings = [finding(Status::Ok, "git"), finding(Status::Fail, "")];
        let (mut written, mut err) = (Vec::new(), Vec::new());
        let mut out = Out {
            out: &mut written,
            err: &mut err,
            colours: false,
            width: None,
            can_ask: false,
        };
        tell(&findings, false, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(written).unwrap(),
            "ok   leaf git: two\\nlines\nfail leaf: two\\nlines\n"
        );
    }
}
