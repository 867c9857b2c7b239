//! Secrets and certificates in files: a rotated one is used within seconds, and a refused token is read again at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
    lane::Lane,
};
use crate::{observe::Refused, shutdown::Tasks, store::StoreError};

const INTERVAL: Duration = Duration::from_secs(4);

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    driver::spawn(
        tasks,
        context,
        Credentials::default(),
        context.nudges.credentials.clone(),
        until,
    );
}

#[derive(Debug, Default)]
struct Credentials {
    /// What is wrong with the files of a leaf's TLS or proxy, as it was said.
    refused: BTreeMap<String, String>,
}

impl Pass for Credentials {
    const NAME: &'static str = "credentials";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let lanes = context.lanes.all();
        for lane in &lanes {
            let settings = lane.settings();
            let read = tokio::task::spawn_blocking(move || {
                (settings.leaf.secrets.refresh(), settings.client.refresh())
            });
            let Ok((secrets, transport)) = read.await else {
                continue;
            };
            for problem in &secrets.problems {
                tracing::warn!(call.leaf = lane.name, "leaf {}: {problem}", lane.name);
            }
            if secrets.changed {
                changed(context, lane, "credentials have changed");
            }
            match transport {
                Ok(false) => drop(self.refused.remove(&lane.name)),
                Ok(true) => {
                    self.refused.remove(&lane.name);
                    changed(
                        context,
                        lane,
                        "certificates, or proxy's password, have changed",
                    );
                }
                Err(error) => {
                    let mut chain = error.to_string();
                    if let Some(source) = std::error::Error::source(&error) {
                        chain = format!("{chain}: {source}");
                    }
                    self.refuse(&lane.name, chain);
                }
            }
        }
        self.refused
            .retain(|name, _| lanes.iter().any(|lane| lane.name == *name));
        let any = !self.refused.is_empty();
        context.observer.set_refused(Refused::Files, any);
        Ok(More::Later)
    }

    fn interval(&self, _context: &Shared) -> Duration {
        INTERVAL
    }
}

impl Credentials {
    /// Says once what is wrong.
    fn refuse(&mut self, leaf: &str, problem: String) {
        if self.refused.get(leaf) != Some(&problem) {
            tracing::error!(
                call.leaf = leaf,
                "files of leaf {leaf} have changed and are refused, what they held before stays: \
                 {problem}"
            );
            self.refused.insert(leaf.to_owned(), problem);
        }
    }
}

/// What a leaf refused before may do now.
fn changed(context: &Shared, lane: &Arc<Lane>, what: &str) {
    tracing::info!(call.leaf = lane.name, "leaf {}: {what}", lane.name);
    context.close_breaker(lane, &format!("its {what}"));
    context.nudges.members.give();
    context.nudges.work.give();
}
