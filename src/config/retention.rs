//! `[retention]`, and what the leaves demand of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    model::{Leaf, Replays, Retention},
    section::Section,
    values,
};

/// Reads the table, for these leaves.
pub(super) fn read(root: &Section<'_>, leaves: &BTreeMap<String, Arc<Leaf>>) -> Retention {
    let section = root.table_or_default("retention");
    let retention = Retention {
        finished: section.must("finished", values::retention),
        results: section.must("results", values::retention),
        result_bodies: section.must("result_bodies", values::retention),
        actions: section.must("actions", values::retention),
    };
    if let Some(results) = retention.results {
        if retention
            .result_bodies
            .is_some_and(|bodies| bodies > results)
        {
            section.fault(
                "result_bodies",
                format!(
                    "is longer than retention.results ({}), whose end takes the bodies along",
                    values::shown(results)
                ),
            );
        }
        if retention.finished.is_none_or(|finished| finished > results) {
            section.warn(
                "results",
                "is shorter than `finished`; a confirmation stays as long as a call of its key does",
            );
        }
    }
    for leaf in leaves.values() {
        windows(&section, &retention, leaf);
    }
    section.finish();
    retention
}

/// The idempotency header's value follows from what is on record of a key. So nothing of it may go while the leaf still
/// remembers a value that it led to.
fn windows(section: &Section<'_>, retention: &Retention, leaf: &Leaf) {
    let Some(idempotency) = &leaf.idempotency else {
        return;
    };
    let (name, window) = (&leaf.name, idempotency.window);
    let is_shorter = |kept: Option<Duration>| kept.is_some_and(|kept| kept < window);
    let window = values::shown(window);
    section.check(
        "results",
        !is_shorter(retention.results),
        format!(
            "is shorter than leaf.{name}.idempotency.window ({window}): an effect that is forgotten and made again \
             would be taken for one that the leaf remembers"
        ),
    );
    section.check(
        "finished",
        idempotency.replays != Replays::All || !is_shorter(retention.finished),
        format!(
            "is shorter than leaf.{name}.idempotency.window ({window}): what the leaf has refused would be sent again \
             under a value that it remembers, and be refused for that"
        ),
    );
}
