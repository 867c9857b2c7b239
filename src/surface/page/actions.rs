//! What people did, as it is shown.

use serde::Serialize;

use crate::{
    present::text::{Fields, age, counted},
    store::operator::watch::Action,
};

use super::view::Moment;

/// Of the latest actions so many lines are shown.
const LINES: usize = 8;

/// One action, or several that are alike.
#[derive(Debug, Serialize)]
pub(super) struct Deed {
    actor: String,
    action: String,
    /// To what.
    what: String,
    to: Option<String>,
    reason: String,
    ago: String,
    moment: Option<Moment>,
}

/// The latest ones. What one person did for one reason, one after the other, is one line.
pub(super) fn deeds(actions: &[Action]) -> Vec<Deed> {
    let alike = |a: &Action, b: &Action| {
        (&a.actor, &a.action, &a.reason) == (&b.actor, &b.action, &b.reason)
            && (a.call.is_some(), a.batch.is_some()) == (b.call.is_some(), b.batch.is_some())
    };
    let groups = actions.chunk_by(alike).take(LINES);
    groups
        .filter_map(|group| {
            let first = group.first()?;
            let (what, to) = match (group.len(), first.call, first.batch, &first.leaf) {
                (1, Some(call), _, _) => (format!("call {call}"), Some(format!("/calls/{call}"))),
                (1, None, Some(batch), _) => {
                    (format!("batch {batch}"), Some(format!("/batches/{batch}")))
                }
                (1, None, None, Some(leaf)) => (format!("leaf {leaf}"), None),
                (1, None, None, None) => ("everything".to_owned(), None),
                (number, Some(_), _, _) => (counted(number, "call"), None),
                (number, None, Some(_), _) => (format!("{number} batches"), None),
                (number, None, None, _) => (format!("{number} leaves"), None),
            };
            Some(Deed {
                actor: first.actor.clone(),
                action: words(&first.action),
                what,
                to,
                reason: first.reason.clone(),
                ago: age(first.ago),
                moment: None,
            })
        })
        .collect()
}

/// Rows of `operator_action` of one call or batch, as JSON.
pub(super) fn deeds_of(json: &str, now: jiff::Timestamp) -> Vec<Deed> {
    let actions = Fields::read_all(json);
    let deeds = actions.iter().map(|action| Deed {
        actor: action.cell("actor"),
        action: words(&action.cell("action")),
        what: String::new(),
        to: None,
        reason: action.cell("reason"),
        ago: String::new(),
        moment: Some(Moment::read(&action.cell("at"), now)),
    });
    deeds.collect()
}

/// `resolve_not_executed` → `resolve not executed`
fn words(action: &str) -> String {
    action.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(actor: &str, call: i64, reason: &str) -> Action {
        Action {
            actor: actor.to_owned(),
            action: "retry".to_owned(),
            call: Some(call),
            batch: None,
            leaf: None,
            reason: reason.to_owned(),
            ago: 3.0,
        }
    }

    #[test]
    fn what_was_done_to_many_is_one_line() {
        let actions = [
            action("ada", 9, "outage over"),
            action("ada", 8, "outage over"),
            action("bob", 7, "outage over"),
        ];
        let deeds = deeds(&actions);
        let told: Vec<(&str, &str)> = deeds
            .iter()
            .map(|deed| (deed.actor.as_str(), deed.what.as_str()))
            .collect();
        assert_eq!(told, [("ada", "2 calls"), ("bob", "call 7")]);
    }
}
