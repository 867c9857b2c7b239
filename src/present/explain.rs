//! Why a call is where it is, in words, and what would move it.
//!
//! One line for each state and reason of the contract; a test compares the list with the schema's.

use super::{
    kept,
    lines::{
        BATCH_CLOSED, HEAD_ENDED, LEASE_OVER, LINES, NO_INSTANCE, NOT_BEFORE, NOT_SENT, OVERDUE,
        Step, TOKEN_REFUSED, UNDO_DONE, UNDO_FAILED, UNDO_OVER, UNDO_REMADE, UNDO_TEMPLATE,
        UNDO_WAIVED, UNDONE, UNREACHABLE,
    },
    remedy::Remedy,
    text::{age, clean, fill},
};
use crate::{
    domain::call::CallId,
    store::operator::{CallRow, show::Details},
};

/// What is said of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// In one or two sentences.
    pub(crate) why: String,
    /// What would move it; empty where nothing is needed or nothing can.
    pub(crate) remedies: Vec<Remedy>,
}

impl Explanation {
    /// The remedies as commands.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.remedies.iter().map(Remedy::command).collect()
    }
}

/// What is known of a call beside its row.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Around {
    /// Seconds until it is looked at next.
    pub(crate) due_in: Option<f64>,
    /// No instance is running.
    pub(crate) no_instance: bool,
    /// No attempt of it is on record.
    pub(crate) unsent: bool,
    /// If it has failed it may be retried.
    pub(crate) may_run_again: bool,
    /// The head that it waits for has ended without a confirmation.
    pub(crate) head_ended: bool,
    /// Calls behind it wait, since it ended without a confirmation.
    pub(crate) holds_others: bool,
    /// The effect that confirmed it was undone.
    pub(crate) undone: bool,
    /// Where the breaker is open: whether the leaf refuses the call's token; else it can't be reached.
    pub(crate) token_refused: Option<bool>,
}

/// What is to be said of this call.
pub(crate) fn explain(details: &Details) -> Explanation {
    let ended = |head: &CallRow| matches!(head.state.as_str(), "failed" | "cancelled" | "expired");
    let around = Around {
        due_in: details.due_in,
        no_instance: details.instances == 0,
        unsent: details.call.attempts == 0 && details.attempts == "[]",
        may_run_again: details.may_run_again,
        head_ended: details.waits_for.as_ref().is_some_and(ended),
        holds_others: details.holds_others,
        undone: details.result.as_deref().is_some_and(is_undone),
        token_refused: kept::token_refused(details),
    };
    let mut said = explain_call(&details.call, around);
    said.why.push_str(&kept::more(details));
    said
}

/// What is to be said of a call with this around it.
pub(crate) fn explain_call(call: &CallRow, around: Around) -> Explanation {
    let known = call.reason.as_deref().unwrap_or_default();
    let reason = refined(call, around, known);
    let line = LINES
        .iter()
        .find(|line| line.state == call.state && (line.reason == reason || line.reason == "*"));
    let Some(line) = line else {
        return Explanation {
            why: format!(
                "It is {}; this leafhopper knows no more of that.",
                call.state
            ),
            remedies: Vec::new(),
        };
    };
    let (before, after, waive) = of_undoing(call);
    let release = around.holds_others.then_some(Step::Release);
    let steps = line.steps.iter().copied().chain(waive).chain(release);
    let why = format!("{before}{}{after}", line.why);
    Explanation {
        why: fill(&why, |name| value(name, call, around)),
        remedies: steps.filter_map(|step| step.of(call)).collect(),
    }
}

/// What is said of a compensation beside: before the line, behind it, and the step that only it has.
fn of_undoing(call: &CallRow) -> (&'static str, &'static str, Option<Step>) {
    match (call.undoes, call.state.as_str()) {
        (Some(_), "parked") => (
            "",
            " It would undo the effect of call {undoes}: to confirm says that this is done, to waive lets the effect stand.",
            Some(Step::Waive),
        ),
        (Some(_), "pending" | "dispatching" | "accepted" | "in_doubt") => {
            ("It undoes the effect of call {undoes}. ", "", None)
        }
        _ => ("", "", None),
    }
}

fn value(name: &str, call: &CallRow, around: Around) -> String {
    let other = |id: Option<CallId>| id.map_or_else(|| "(unknown)".to_owned(), |id| id.to_string());
    match name {
        "leaf" => clean(&call.leaf),
        "other" => other(call.waits_for),
        "undoes" => other(call.undoes),
        "refuses" => kept::refuses(call),
        "token" => kept::token(call),
        "due" => around
            .due_in
            .filter(|due| *due >= 1.0)
            .map_or_else(|| "a moment".to_owned(), age),
        "reason" => match call.reason.as_deref().unwrap_or_default() {
            "" => "no reason given".to_owned(),
            reason => clean(reason),
        },
        "when" => match call.run_when.as_str() {
            "batch_succeeded" => "once the batch has succeeded",
            "batch_failed" => "once the batch has failed and its teardown is done",
            _ => "once all else of the batch is final",
        }
        .to_owned(),
        unknown => format!("{{{unknown}}}"),
    }
}

/// The reason, or one of this table's own where more is known than the view says.
fn refined<'a>(call: &CallRow, around: Around, reason: &'a str) -> &'a str {
    let undoes = call.undoes.is_some();
    match (call.state.as_str(), reason) {
        ("pending", "") if around.due_in.is_some_and(|due| due > 0.0) => NOT_BEFORE,
        ("pending", "" | "leaf_unknown") if around.no_instance => NO_INSTANCE,
        ("pending", "") if call.stuck => OVERDUE,
        ("pending", "retry") if around.unsent => NOT_SENT,
        ("pending", "breaker_open") => match around.token_refused {
            Some(false) => UNREACHABLE,
            Some(true) => TOKEN_REFUSED,
            None if kept::was_refused(call) => TOKEN_REFUSED,
            None => reason,
        },
        ("pending", "waits_for_order") if around.head_ended => HEAD_ENDED,
        ("pending", "waits_for_batch") if undoes => UNDO_REMADE,
        ("dispatching", "") if call.stuck => LEASE_OVER,
        ("parked", "template") if undoes => UNDO_TEMPLATE,
        ("confirmed", _) if undoes => UNDO_DONE,
        ("confirmed", _) if around.undone => UNDONE,
        ("failed", _) if undoes && around.may_run_again => UNDO_FAILED,
        ("failed", _) if undoes => UNDO_OVER,
        ("failed", _) if call.batch.is_some() && !around.may_run_again => BATCH_CLOSED,
        ("cancelled", "waived") if undoes => UNDO_WAIVED,
        _ => reason,
    }
}

/// Whether this row of `result`, as JSON, is no more.
fn is_undone(result: &str) -> bool {
    let result: serde_json::Value = serde_json::from_str(result).unwrap_or_default();
    !result["undone_at"].is_null()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::{
        migrate::MIGRATIONS,
        operator::{
            PARKED_REASONS, STATES,
            leaves::{LeafRow, Pause},
        },
    };

    fn details(state: &str, reason: Option<&str>) -> Details {
        Details {
            call: CallRow {
                id: 7,
                leaf: "git".to_owned(),
                key: "site:7".to_owned(),
                state: state.to_owned(),
                reason: reason.map(str::to_owned),
                waits_for: Some(3),
                attempts: 1,
                last_status: None,
                batch: None,
                run_when: "ready".to_owned(),
                undoes: None,
                stuck: false,
                age: 1.0,
                json: "{}".to_owned(),
            },
            may_run_again: false,
            leaves: Vec::new(),
            due_in: None,
            instances: 1,
            holds_others: false,
            attempts: "[]".to_owned(),
            result: None,
            actions: "[]".to_owned(),
            batch: None,
            ended: "[]".to_owned(),
            waits_for: None,
            same_key: Vec::new(),
        }
    }

    /// The quoted words of `text` between two marks.
    fn words<'a>(text: &'a str, from: &str, to: &str, before: &str) -> BTreeSet<&'a str> {
        let part = text.split_once(from).unwrap().1.split_once(to).unwrap().0;
        part.split(before)
            .skip(1)
            .map(|word| word.split('\'').next().unwrap())
            .collect()
    }

    fn told(state: &str) -> BTreeSet<&'static str> {
        LINES
            .iter()
            .filter(|line| line.state == state)
            .map(|line| line.reason)
            .filter(|reason| !reason.starts_with('(') && !reason.is_empty() && *reason != "*")
            .collect()
    }

    #[test]
    fn every_reason_that_the_view_gives_a_pending_call_is_explained() {
        let given = words(
            MIGRATIONS[1].sql,
            "WHEN stands.state <> 'pending'",
            "END AS reason",
            "THEN '",
        );
        assert_eq!(told("pending"), given);
    }

    #[test]
    fn every_reason_of_a_failed_call_is_explained() {
        let sql = MIGRATIONS[0].sql;
        let list = words(sql, "OR reason IN (", ")", "'");
        let known: BTreeSet<&str> = list
            .into_iter()
            .filter(|word| !word.is_empty() && !word.starts_with(','))
            .collect();
        assert_eq!(told("failed"), known);
    }

    #[test]
    fn every_reason_to_park_is_explained() {
        let parked = PARKED_REASONS.iter().copied().collect();
        assert_eq!(told("parked"), parked);
    }

    #[test]
    fn every_state_is_explained_and_no_placeholder_is_left() {
        let states: BTreeSet<&str> = LINES.iter().map(|line| line.state).collect();
        assert_eq!(states, STATES.iter().copied().collect());
        for line in LINES {
            let reason = match line.reason {
                "" => None,
                "*" => Some("changed {leaf} my mind"),
                reason => Some(reason),
            };
            let said = explain(&details(line.state, reason));
            for text in said.commands().iter().chain([&said.why]) {
                let text = text.replace("changed {leaf} my mind", "");
                assert!(!text.contains('{') && !text.contains('}'), "{text}");
            }
        }
    }

    #[test]
    fn what_a_row_holds_is_shown_as_it_is() {
        let mut details = details("pending", Some("leaf_unknown"));
        details.call.leaf = "{} {reason} {due}".to_owned();
        let why = explain(&details).why;
        assert!(why.contains("knows a leaf {} {reason} {due}:"), "{why}");
    }

    #[test]
    fn no_attempt_is_said_to_have_failed_where_none_was_made() {
        let mut details = details("pending", Some("retry"));
        assert!(explain(&details).why.starts_with("The last attempt"));
        details.call.attempts = 0;
        assert!(explain(&details).why.starts_with("Nothing was sent"));
        // One that was refused a connection spends none, and is on record.
        details.attempts = "[{}]".to_owned();
        assert!(explain(&details).why.starts_with("The last attempt"));
    }

    fn leaf(name: &str) -> LeafRow {
        LeafRow {
            name: name.to_owned(),
            instances: 1,
            paused: false,
            pause: None,
            holds_after_failed_head: false,
            breaker_open: false,
            rate_limited: false,
            blocked: Vec::new(),
        }
    }

    #[test]
    fn a_refused_token_is_told_from_a_leaf_that_is_away() {
        let mut details = details("pending", Some("breaker_open"));
        let said = |details: &Details| explain(details).why;
        assert!(said(&details).contains("or could not be reached"));
        details.call.last_status = Some(401);
        assert!(
            said(&details)
                .starts_with("Leaf git answered 401: it refuses the token of [leaf.git] auth.")
        );
        details.leaves = vec![leaf("git")];
        details.leaves[0].breaker_open = true;
        assert!(said(&details).starts_with("Leaf git could not be reached"));
        details.call.last_status = None;
        details.leaves[0].blocked = vec!["c7".to_owned()];
        assert!(said(&details).starts_with("Leaf git could not be reached"));
        details.call.json = r#"{"credential": "c7"}"#.to_owned();
        assert!(said(&details).starts_with("Leaf git refuses the credential c7 (a file"));
    }

    #[test]
    fn what_is_known_of_the_leaf_is_said() {
        let mut unknown = details("pending", Some("leaf_unknown"));
        unknown.call.leaf = "mial".to_owned();
        unknown.leaves = vec![leaf("git"), leaf("mail"), leaf("gone")];
        unknown.leaves[2].instances = 0;
        let why = explain(&unknown).why;
        assert!(
            why.ends_with(" Did the application mean mail? Known: git, mail."),
            "{why}"
        );
        let mut paused = details("pending", Some("leaf_paused"));
        paused.leaves = vec![leaf("git")];
        paused.leaves[0].pause = Some(Pause {
            actor: "ada@ops".to_owned(),
            reason: "their {leaf} maintenance".to_owned(),
            at: "2026-01-02T03:04:05Z".to_owned(),
        });
        let why = explain(&paused).why;
        let end = "ada@ops paused it at 2026-01-02T03:04:05Z: their {leaf} maintenance";
        assert!(why.ends_with(end), "{why}");
    }

    #[test]
    fn a_compensation_that_waits_for_a_person_can_be_waived_and_no_other_call() {
        let waive = Remedy::Waive(7);
        for (state, reason) in [
            ("parked", "weak_adoption"),
            ("parked", "template"),
            ("parked", "no_probe"),
            ("failed", "rejected"),
        ] {
            let mut details = details(state, Some(reason));
            details.may_run_again = true;
            assert!(!explain(&details).remedies.contains(&waive));
            details.call.undoes = Some(5);
            let said = explain(&details);
            assert!(said.remedies.contains(&waive), "{state} {reason}: {said:?}");
            assert!(said.why.contains("call 5"), "{said:?}");
        }
    }
}
