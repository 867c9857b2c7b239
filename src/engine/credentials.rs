//! Secrets in files: a rotated token is used within seconds, and a refused one is read again at once.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{observe::Observation, shutdown::Tasks, store::StoreError};

const INTERVAL: Duration = Duration::from_secs(4);

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    driver::spawn(
        tasks,
        context,
        Credentials,
        context.nudges.credentials.clone(),
        until,
    );
}

#[derive(Debug)]
struct Credentials;

impl Pass for Credentials {
    const NAME: &'static str = "credentials";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        for lane in context.lanes.all() {
            let secrets = std::sync::Arc::clone(&lane.settings().leaf.secrets);
            let Ok(refreshed) = tokio::task::spawn_blocking(move || secrets.refresh()).await else {
                continue;
            };
            for problem in &refreshed.problems {
                tracing::warn!(call.leaf = lane.name, "leaf {}: {problem}", lane.name);
            }
            if !refreshed.changed {
                continue;
            }
            tracing::info!(
                call.leaf = lane.name,
                "leaf {}: credentials have changed",
                lane.name
            );
            if lane.close_breaker() {
                let why = "its credentials have changed";
                context.observer.emit(Observation::Breaker {
                    leaf: &lane.name,
                    open: false,
                    why,
                });
            }
            context.nudges.members.give();
            context.nudges.work.give();
        }
        Ok(More::Later)
    }

    fn interval(&self, _context: &Shared) -> Duration {
        INTERVAL
    }
}
