//! Why a batch is where it is, in words, and what would move it; why an effect stands.

use super::{
    explain::{Around, Explanation, explain_call},
    remedy::Remedy,
    text::{Fields, counted},
};
use crate::store::operator::{CallRow, batches::BatchDetails};

/// What is to be said of this batch.
pub(crate) fn explain(details: &BatchDetails) -> Explanation {
    Explanation {
        why: why(details),
        remedies: remedies(details),
    }
}

fn why(details: &BatchDetails) -> String {
    let batch = &details.batch;
    let row = Fields::read(&batch.json).unwrap_or_default();
    let is = |name: &str| row.text(name).as_deref() == Some("true");
    let waiting = calls(details.waits_for.number);
    let because = because(details);
    match batch.state.as_str() {
        "open" if details.announced => format!(
            "It is cancelled{because}: a running instance writes that into its row within moments."
        ),
        "open" if batch.reason.is_some() => format!(
            "All its calls are final, and nobody has said that no more come. Seal it with \
             SELECT leafhopper.seal('{}'), or cancel it.",
            batch.id
        ),
        "open" if details.ready.number == 0 && is("sealed") => "It has no calls yet.".to_owned(),
        "open" => {
            let sealed = if is("sealed") {
                ""
            } else {
                " It takes more until leafhopper.seal() says that it is complete."
            };
            let failure = if is("allow_failures") {
                "Failures don't cancel it."
            } else {
                "The first that fails cancels it."
            };
            format!("It is under way, and waits for {waiting}. {failure}{sealed}")
        }
        "closing" => {
            "All its calls are final. A running instance looks once more, and then says how it ended."
                .to_owned()
        }
        "cancelling" => format!(
            "It was cancelled{because}. What waited is not sent. Once what is in flight, in doubt or parked is \
             final ({waiting}), what was confirmed is undone."
        ),
        "compensating" => format!(
            "It was cancelled{because}, and what was confirmed is being undone, {}.{}",
            match row.cell("undo_order").as_str() {
                "any" => "in any order",
                _ => "the newest first",
            },
            holdup(details)
        ),
        "cancelled" => format!("It was cancelled{because}. {}{}", undone(details), end(details)),
        "succeeded" => format!("All its calls are confirmed.{}", end(details)),
        "finished" => format!(
            "All its calls are final. Some came to nothing, which it allows (allow_failures), so nothing is undone.{}",
            end(details)
        ),
        state => format!("It is {state}; this leafhopper knows no more of that."),
    }
}

fn calls(number: u64) -> String {
    counted(usize::try_from(number).unwrap_or(usize::MAX), "call")
}

/// What cancelled it, where that is on record.
fn because(details: &BatchDetails) -> String {
    let by_hand = Fields::read_all(&details.actions)
        .into_iter()
        .find(|action| action.cell("action") == "cancel_batch");
    if let Some(action) = by_hand {
        return format!(" by {} ({})", action.cell("actor"), action.cell("reason"));
    }
    let first = details.first_end.as_deref().and_then(Fields::read);
    match first {
        Some(first) if first.cell("reason") != "batch_cancelled" => format!(
            " because call {} {} ({})",
            first.cell("id"),
            match first.cell("state").as_str() {
                "failed" => "failed",
                "expired" => "expired",
                _ => "was cancelled",
            },
            first.text("reason").unwrap_or_else(|| {
                let reason = match first.cell("state").as_str() {
                    "expired" => "its deadline passed",
                    _ => "no reason given",
                };
                reason.to_owned()
            })
        ),
        _ => String::new(),
    }
}

fn holdup(details: &BatchDetails) -> String {
    match details.batch.reason.as_deref() {
        Some("teardown_incomplete") => {
            " A call that undoes an effect has failed or is parked, and the effect stands. Look at it; then send it \
             again, say that the effect is undone, or let it stand."
                .to_owned()
        }
        Some("leaf_unknown") => {
            let mut leaves: Vec<String> = Fields::read_all(&details.effects)
                .iter()
                .filter(|effect| effect.cell("leaf_known") == "false")
                .map(|effect| effect.cell("leaf"))
                .collect();
            leaves.sort_unstable();
            leaves.dedup();
            let named = if leaves.is_empty() {
                String::new()
            } else {
                format!(" ({})", leaves.join(", "))
            };
            format!(
                " It waits for a leaf that no running instance knows{named}: start `leafhopper run` with a \
                 configuration that has it, or add it there and send SIGHUP (kill -HUP $(pidof leafhopper))."
            )
        }
        _ => String::new(),
    }
}

fn undone(details: &BatchDetails) -> String {
    match (details.batch.standing, details.undone) {
        (0, 0) => "Nothing of it was to be undone.".to_owned(),
        (0, _) => "All that was confirmed of it is undone.".to_owned(),
        (1, _) => "One effect of it stands; why, is said below.".to_owned(),
        (standing, _) => format!("{standing} effects of it stand; why, is said below."),
    }
}

fn end(details: &BatchDetails) -> &'static str {
    if details.batch.finished_ago.is_some() {
        " It takes no more calls."
    } else {
        " What is to follow is under way."
    }
}

/// Why a batch in this state waits, in one sentence that needs no more than its row.
pub(crate) fn in_short(state: &str, reason: Option<&str>) -> &'static str {
    match (state, reason) {
        ("compensating", Some("teardown_incomplete")) => {
            "It was cancelled, and an effect of it could not be undone: it stands, and older ones wait for it."
        }
        ("compensating", Some("leaf_unknown")) => {
            "It was cancelled, and its teardown waits for a leaf that no running instance knows."
        }
        ("compensating", _) => "It was cancelled, and undoing what was confirmed takes long.",
        ("cancelling", _) => {
            "It was cancelled, and calls of it are still in flight, in doubt or parked: what was confirmed is undone \
             after that."
        }
        ("open", _) => {
            "All its calls are final, and nobody has said that no more come: it waits for leafhopper.seal(), or to be \
             cancelled."
        }
        _ => "It has not moved for long.",
    }
}

/// What would move the first of those that wait for a person.
fn remedies(details: &BatchDetails) -> Vec<Remedy> {
    let waits = details.waits_for.first.iter();
    let undoing = details.undoing.iter();
    let first = waits.chain(undoing).find(|call| waits_for_a_person(call));
    if let Some(call) = first {
        return remedies_of(details, call);
    }
    match details.batch.reason.as_deref() {
        Some("unsealed") => vec![Remedy::CancelBatch(details.batch.id)],
        _ => Vec::new(),
    }
}

fn waits_for_a_person(call: &CallRow) -> bool {
    call.state == "parked" || call.undoes.is_some() && call.state == "failed"
}

/// What would move the call that should undo this effect, where that one waits for a person.
pub(crate) fn remedies_to_undo(details: &BatchDetails, effect: &Fields) -> Vec<Remedy> {
    let id = effect.cell("compensation");
    let call = details
        .undoing
        .iter()
        .find(|call| call.id.to_string() == id);
    match call {
        Some(call) if matches!(call.state.as_str(), "parked" | "failed") => {
            remedies_of(details, call)
        }
        _ => Vec::new(),
    }
}

/// What would move a call of this batch.
pub(crate) fn remedies_of(details: &BatchDetails, call: &CallRow) -> Vec<Remedy> {
    let around = Around {
        may_run_again: details.batch.state == "compensating",
        ..Around::default()
    };
    explain_call(call, around).remedies
}

/// Why this effect of the batch stands.
pub(crate) fn why_it_stands(details: &BatchDetails, effect: &Fields) -> String {
    let Some(call) = effect.text("compensation") else {
        let is = |name: &str| effect.cell(name) == "true";
        let own = is("own_compensate");
        let text = match details.batch.state.as_str() {
            "open" | "closing" | "succeeded" | "finished" => "the batch has not failed",
            _ if !own && effect.text("undone_by").is_none() => {
                "a GET or HEAD changes nothing that a leaf's compensation could undo"
            }
            _ if !own && !is("leaf_known") => {
                "no running instance knows the leaf, nor whether it has a compensation"
            }
            _ if !own && !is("leaf_compensates") => "no compensation is configured",
            "cancelling" => "undone once the batch has settled",
            "cancelled" => "confirmed after the teardown; it is undone next",
            _ => "not its turn yet",
        };
        return text.to_owned();
    };
    let state = effect.cell("compensation_state");
    let reason = effect.cell("compensation_reason");
    let status = effect.text("compensation_status");
    let status = status.map_or_else(String::new, |status| format!(", status {status}"));
    let error = effect.text("compensation_error");
    let error = error.map_or_else(String::new, |error| format!(": {error}"));
    match (state.as_str(), reason.as_str()) {
        ("parked", "weak_adoption") => {
            format!(
                "adopted without a matcher, so it is not surely ours; call {call} waits for a word"
            )
        }
        ("parked", _) => {
            format!("call {call}, which would undo it, is parked ({reason}{status}){error}")
        }
        ("failed", _) => {
            format!("call {call}, which would undo it, failed ({reason}{status}){error}")
        }
        ("cancelled", "waived") => format!("waived: {}", effect.cell("waived_because")),
        (state, _) => format!("call {call} undoes it, and is {state}"),
    }
}
