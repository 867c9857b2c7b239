//! State and reason in a few words.

use super::text::Fields;
use crate::store::operator::{CallRow, STATES, batches::BatchRow};

/// State and reason in a few words: `parked: no_probe, stuck`.
pub(crate) fn standing(call: &CallRow) -> String {
    let mut text = call.state.clone();
    if let Some(reason) = &call.reason {
        text.push_str(": ");
        text.push_str(reason);
    }
    // A call of a paused leaf may stand behind another one too; that is not what it waits for.
    let waits = matches!(
        call.reason.as_deref(),
        Some("waits_for_key" | "waits_for_order")
    );
    if let (true, Some(other)) = (waits, call.waits_for) {
        text.push_str(&format!(" {other}"));
    }
    if call.stuck {
        text.push_str(", stuck");
    }
    text
}

/// State and reason in a few words: `compensating: teardown_incomplete, stuck`.
pub(crate) fn batch_standing(batch: &BatchRow) -> String {
    let mut text = batch.state.clone();
    if let Some(reason) = &batch.reason {
        text.push_str(": ");
        text.push_str(reason);
    }
    if batch.stuck {
        text.push_str(", stuck");
    }
    text
}

/// How many calls are in which state: `3 confirmed, 1 failed`.
pub(crate) fn numbers(by_state: &str) -> String {
    let fields = Fields::read(by_state).unwrap_or_default();
    let states = STATES
        .iter()
        .filter_map(|state| Some(format!("{} {state}", fields.text(state)?)));
    states.collect::<Vec<_>>().join(", ")
}
