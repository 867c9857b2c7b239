//! What keeps calls from a leaf: a token that it refuses, a person's word, a name that nobody knows.

use super::text::{Fields, clean, shorten};
use crate::{
    store::operator::{CallRow, show::Details},
    suggest::closest,
};

/// So many known leaves are named.
const NAMED: usize = 10;

/// Of what a person said, so many characters.
const SAID: usize = 200;

/// The leaf has answered this call with a status that refuses its token.
pub(super) fn was_refused(call: &CallRow) -> bool {
    matches!(call.last_status, Some(401 | 407))
}

/// Whether an instance has found that the leaf refuses the call's token, or else that it can't be reached.
pub(super) fn token_refused(details: &Details) -> Option<bool> {
    let call = &details.call;
    let leaf = details.leaves.iter().find(|leaf| leaf.name == call.leaf)?;
    let credential = credential(call).unwrap_or_default();
    if leaf.blocked.contains(&credential) {
        return Some(true);
    }
    leaf.breaker_open.then_some(false)
}

fn credential(call: &CallRow) -> Option<String> {
    Fields::read(&call.json)?.text("credential")
}

/// `answered 401: it refuses`, as far as the call has met it.
pub(super) fn refuses(call: &CallRow) -> String {
    match call.last_status.filter(|_| was_refused(call)) {
        Some(status) => format!("answered {status}: it refuses"),
        None => "refuses".to_owned(),
    }
}

/// What it refuses.
pub(super) fn token(call: &CallRow) -> String {
    let leaf = clean(&call.leaf);
    match credential(call) {
        Some(name) => format!(
            "the credential {} (a file in the folder `credentials` of [leaf.{leaf}])",
            clean(&name)
        ),
        None => format!("the token of [leaf.{leaf}] auth"),
    }
}

/// What is known of the leaf beside: who paused it, or which ones there are instead of it.
pub(super) fn more(details: &Details) -> String {
    let name = &details.call.leaf;
    let leaves = &details.leaves;
    match details.call.reason.as_deref() {
        Some("leaf_paused") => {
            let leaf = leaves.iter().find(|leaf| leaf.name == *name);
            let Some(pause) = leaf.and_then(|leaf| leaf.pause.as_ref()) else {
                return String::new();
            };
            let reason = shorten(&pause.reason, SAID);
            format!(" {} paused it at {}: {reason}", pause.actor, pause.at)
        }
        Some("leaf_unknown") => {
            let known = leaves.iter().filter(|leaf| leaf.instances > 0);
            let known: Vec<&str> = known.map(|leaf| leaf.name.as_str()).collect();
            if known.is_empty() {
                return String::new();
            }
            let meant = closest(name, &known)
                .map(|meant| format!(" Did the application mean {meant}?"))
                .unwrap_or_default();
            let more = known.len().saturating_sub(NAMED);
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named: Vec<&str> = known.iter().copied().take(NAMED).collect();
            format!("{meant} Known: {}{more}.", named.join(", "))
        }
        _ => String::new(),
    }
}
