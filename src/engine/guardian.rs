//! Is this still the same database? Compared at start ([`crate::app`]), then while calls are held, whenever the look
//! ([`super::lookout`]) or a failure gives cause, and now and then. Where it is not, or where it lost what was committed, all
//! sending stops.

use std::{collections::HashSet, sync::atomic::Ordering, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    context::Shared,
    driver::{self, More, Pass, UNTOLD},
};
use crate::{observe::Observation, shutdown::Tasks, store::StoreError};

pub(super) fn spawn(tasks: &Tasks, context: &Shared, until: &CancellationToken) {
    let nudge = context.nudges.origin.clone();
    driver::spawn(tasks, context, Guardian::default(), nudge, until);
}

/// How often it asks whether all have looked, after a failover.
const WITNESSES: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
struct Guardian {
    /// When it was asked last, and answered.
    asked: Option<Instant>,
    /// It is to be asked.
    due: bool,
    /// What was found, and could not be written down yet.
    found: Option<String>,
    /// The database says that sending is stopped: a person will say how to go on.
    written: bool,
    /// For the other witnesses of a failover.
    waiting: bool,
}

impl Pass for Guardian {
    const NAME: &'static str = "guardian";

    async fn pass(&mut self, context: &Shared) -> Result<More, StoreError> {
        // What this instance knows to be committed is read before the database is asked.
        let beat = context.last_beat.load(Ordering::SeqCst);
        let held = context.held.snapshot().calls;
        self.due |= context.origin_doubted.swap(false, Ordering::SeqCst);
        let unsettled = self.waiting || context.database_changed.load(Ordering::SeqCst);
        // The look tells, where it comes as often.
        let told = context.dispatch().poll_interval <= context.dispatch().lease / 6;
        let lately = told && self.asked.is_some_and(|at| at.elapsed() < UNTOLD);
        if held.is_empty() && !unsettled && !self.due && lately {
            return Ok(More::Later);
        }
        self.due = true;
        let origin = context.store.origin().await?;
        self.waiting = false;
        let mut difference = origin.change.clone();
        // While it is the same database and nothing is held, only a renewal can be lost: the next one tells.
        let has_lost = !held.is_empty() || origin.difference().is_some();
        if difference.is_none() && has_lost {
            difference = context.store.lost(context.identity.id, beat, &held).await?;
        }
        if difference.is_some() && origin.change.is_none() {
            // What was given back between the list and the look is not lost: only what is held still counts.
            let now: HashSet<_> = context.held.snapshot().calls.into_iter().collect();
            let held: Vec<_> = held
                .into_iter()
                .filter(|claim| now.contains(claim))
                .collect();
            difference = context.store.lost(context.identity.id, beat, &held).await?;
        }
        if difference.is_none() && origin.only_timeline_differs() && beat > 0 {
            // A standby was promoted, and it has all that this instance knows of. Nothing is claimed before every
            // instance that lives has found the same.
            let timeline = origin.is.timeline;
            self.waiting = !context
                .store
                .witnessed(context.identity.id, timeline)
                .await?;
            if !self.waiting {
                tracing::info!(
                    "the database was failed over to timeline {timeline}; nothing that was committed is lost"
                );
                context.store.follow_timeline(timeline).await?;
                context.nudges.work.give();
            }
        } else if difference.is_none() {
            difference = origin.difference();
        }
        match difference.or_else(|| self.found.take()) {
            Some(difference) => {
                self.found = Some(difference.clone());
                stop_sending(context, &difference, origin.change.is_some()).await?;
                (self.found, self.written) = (None, true);
            }
            // What another loop has just found may be on its way to the database.
            None => {
                if self.written && context.database_changed.swap(false, Ordering::SeqCst) {
                    tracing::info!("a person said how to go on: calls are sent again");
                    context.nudges.work.give();
                }
                self.written = false;
            }
        }
        (self.due, self.asked) = (false, Some(Instant::now()));
        Ok(More::Later)
    }

    fn interval(&self, context: &Shared) -> Duration {
        if self.waiting {
            return WITNESSES;
        }
        context.dispatch().lease / 6
    }
}

async fn stop_sending(context: &Shared, difference: &str, said: bool) -> Result<(), StoreError> {
    if !context.database_changed.swap(true, Ordering::SeqCst) {
        context
            .observer
            .emit(Observation::DatabaseChanged { difference });
    }
    if said {
        Ok(())
    } else {
        context.store.halt(difference).await
    }
}
