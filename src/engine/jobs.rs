//! Works on the changes of many calls that people have asked for. Every instance does, a step at a time.

use std::collections::BTreeSet;

use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass},
};
use crate::{
    shutdown::Tasks,
    store::{StoreError, operator::job::Steps},
};

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    let nudge = context.nudges.jobs.clone();
    driver::spawn(tasks, context, Jobs::default(), nudge, until);
}

#[derive(Debug, Default)]
struct Jobs {
    /// Those that this program can't read, each of which is told of once.
    left: BTreeSet<i64>,
}

impl Pass for Jobs {
    const NAME: &'static str = "jobs";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        let Steps { taken, left } = context.store.planning().work_on_jobs().await?;
        for (job, flaw) in &left {
            if !self.left.contains(job) {
                tracing::warn!(job.id = job, "job {job} is left to other instances: {flaw}");
            }
        }
        self.left = left.into_iter().map(|(job, _)| job).collect();
        for step in taken.iter().filter(|step| step.last) {
            tracing::info!(job.id = step.job, "job {} has ended", step.job);
        }
        // What is to be sent again may be for a lane of this instance, what is cancelled for a batch.
        if !taken.is_empty() {
            context.nudges.work.give();
            context.nudges.batch.give();
        }
        Ok(if taken.iter().any(|step| !step.last) {
            More::Now
        } else {
            More::Later
        })
    }
}
