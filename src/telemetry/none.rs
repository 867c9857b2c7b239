//! In a build without the feature `otel`: no spans.

use std::time::Duration;

use super::{Exchange, settings};
use crate::{
    config::{Env, Leaf},
    domain::{evidence::Evidence, trace::Trace},
    observe::About,
};

/// Spans go nowhere.
#[derive(Debug, Default)]
pub(crate) struct Telemetry(());

/// There is none.
#[derive(Debug, Default)]
pub(crate) struct Span(());

impl Telemetry {
    /// Somebody who names a collector is told why nothing arrives there.
    pub(crate) fn start(env: Env<'_>, _instance: uuid::Uuid) -> Self {
        let problem = settings::read(env).map(|asked| {
            asked.map(|(collector, _)| {
                format!(
                    "this leafhopper was built without the feature `otel`, which {collector} needs"
                )
            })
        });
        if let Some(problem) = problem.unwrap_or_else(Some) {
            tracing::error!("no spans are exported: {problem}");
        }
        Self(())
    }

    pub(crate) fn span(&self, _: &About<'_>, _: Exchange, _: &str, _: &Leaf) -> Span {
        Span(())
    }

    #[expect(clippy::unused_async, reason = "as with the feature")]
    pub(crate) async fn end(&self, _within: Duration) {}
}

impl Span {
    pub(crate) fn place(&self) -> Option<&Trace> {
        None
    }

    pub(crate) fn end(&mut self, _: &Evidence, _: &'static str, _: bool) {}
}
