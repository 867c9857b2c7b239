//! Why a call is where it is, in words, and what would move it.
//!
//! One line for each state and reason of the contract; a test compares the list with the schema's.

use super::{
    remedy::Remedy,
    text::{age, clean, fill},
};
use crate::{
    domain::call::CallId,
    store::operator::{CallRow, leaves::Treatment, show::Details},
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

/// A [`Remedy`] before it is known for which call.
#[derive(Debug, Clone, Copy)]
enum Step {
    Confirm,
    NotExecuted,
    Waive,
    Retry,
    RetryOther,
    Release,
    ReleaseOther,
    Cancel,
    Resume,
    ResumeAll(Treatment),
    ShowBatch,
    ShowOther,
    Check,
}

impl Step {
    /// For this call; `None` where what it needs is not known.
    fn of(self, call: &CallRow) -> Option<Remedy> {
        Some(match self {
            Self::Confirm => Remedy::Confirm(call.id),
            Self::NotExecuted => Remedy::NotExecuted(call.id),
            Self::Waive => Remedy::Waive(call.id),
            Self::Retry => Remedy::Retry(call.id),
            Self::RetryOther => Remedy::Retry(call.waits_for?),
            Self::Release => Remedy::Release(call.id),
            Self::ReleaseOther => Remedy::Release(call.waits_for?),
            Self::Cancel => Remedy::Cancel(call.id),
            Self::Resume => Remedy::Resume(call.leaf.clone()),
            Self::ResumeAll(treatment) => Remedy::ResumeAll(treatment),
            Self::ShowBatch => Remedy::ShowBatch(call.batch?),
            Self::ShowOther => Remedy::ShowCall(call.waits_for?),
            Self::Check => Remedy::Check,
        })
    }
}

struct Line {
    state: &'static str,
    /// `""`: none. `"*"`: whatever it is, the words have it.
    reason: &'static str,
    why: &'static str,
    steps: &'static [Step],
}

const fn line(
    state: &'static str,
    reason: &'static str,
    why: &'static str,
    steps: &'static [Step],
) -> Line {
    Line {
        state,
        reason,
        why,
        steps,
    }
}

const SAY: &[Step] = &[Step::Confirm, Step::NotExecuted];
const RETRY: &[Step] = &[Step::Retry];
const CANCEL: &[Step] = &[Step::Cancel];
const RESUME: &[Step] = &[Step::Resume];
const MEND_UNDO: &[Step] = &[Step::Retry, Step::Confirm, Step::Waive];
const SHOW_BATCH: &[Step] = &[Step::ShowBatch];
const SHOW_OTHER: &[Step] = &[Step::ShowOther];
const CHECK: &[Step] = &[Step::Check];

/// A reason of this table alone: the contract's view has none for it.
const NOT_BEFORE: &str = "(not yet)";
const NOT_SENT: &str = "(not sent)";
const OVERDUE: &str = "(overdue)";
const NO_INSTANCE: &str = "(no instance)";
const LEASE_OVER: &str = "(lease over)";
const HEAD_ENDED: &str = "(head ended)";
const BATCH_CLOSED: &str = "(batch closed)";
/// The same of compensations.
const UNDO_REMADE: &str = "(undo remade)";
const UNDO_TEMPLATE: &str = "(undo template)";
const UNDO_FAILED: &str = "(undo failed)";
const UNDO_OVER: &str = "(undo over)";
const UNDO_DONE: &str = "(undo done)";
/// Of a call whose effect was undone.
const UNDONE: &str = "(undone)";
const UNDO_WAIVED: &str = "(undo waived)";

#[rustfmt::skip]
const LINES: &[Line] = &[
    line("pending", "", "It is its turn: an instance takes it as soon as it has a free slot for leaf {leaf}.", &[]),
    line("pending", NO_INSTANCE, "No instance is running: start `leafhopper run`, and look why it ended.", CHECK),
    line("pending", NOT_BEFORE, "It is not due yet: it goes in {due}.", &[]),
    line("pending", OVERDUE, "It is due and nobody sends it: the instances are down, or busy with calls before it. One that was killed keeps its slots until its lease has ended.", CHECK),
    line("pending", "leaf_unknown", "No running instance knows a leaf {leaf}: start `leafhopper run` with a configuration that has [leaf.{leaf}], or add it there and send SIGHUP. If the name is a mistake, cancel the call.", CANCEL),
    line("pending", "leaf_paused", "Leaf {leaf} is paused: nothing is sent to it until it is resumed.", RESUME),
    line("pending", "credential_unknown", "No running instance has the credential that the call names: add a file of that name to the folder `credentials` of leaf {leaf}; it is noticed within 5 s.", CANCEL),
    line("pending", "breaker_open", "Leaf {leaf} refused its credentials, or could not be reached several times in a row: one call at a time tries whether it is back. Resuming lets all go at once.", RESUME),
    line("pending", "rate_limited", "The rate that is configured for leaf {leaf} is used up for the moment; it goes when there is room.", &[]),
    line("pending", "waits_for_key", "Call {other} has the same effect key. It is under way, in doubt or parked: only one at a time. Or what it confirmed is about to be undone with its batch. This one goes after that.", SHOW_OTHER),
    line("pending", "waits_for_order", "Call {other} has the same ordering key and goes first: this one follows when that one is final.", SHOW_OTHER),
    line("pending", HEAD_ENDED, "Call {other}, before it in the same order, ended without a confirmation, and leaf {leaf} holds those behind such a call. Send that one again, or let the next one go.", &[Step::RetryOther, Step::ReleaseOther]),
    line("pending", "waits_for_batch", "It is a follow-up of its batch: it is sent {when}.", SHOW_BATCH),
    line("pending", UNDO_REMADE, "Its request is made anew, of what is configured by now: by an instance that knows leaf {leaf}, when it next looks at the batch.", SHOW_BATCH),
    line("pending", "batch_cancelled", "Its batch is cancelled, and so will this call be within moments, without being sent.", SHOW_BATCH),
    line("pending", NOT_SENT, "Nothing was sent for it yet: what stands for its key is about to be undone, or a request of the key's former effect can still arrive, or the leaf could not be called just then. It is looked at again in {due}.", &[]),
    line("pending", "retry", "The last attempt did not get through and had no effect. The next one is due in {due}.", &[]),
    line("pending", "database_changed", "The database is not the one that it was: it was restored, cloned, or lost commits. Nothing is sent until a person says how to go on.", &[Step::ResumeAll(Treatment::Probe), Step::ResumeAll(Treatment::Resend)]),
    line("pending", "untracked", "It was inserted without the table's trigger (session_replication_role = replica). A running instance finds such rows in a slow sweep.", &[]),
    line("dispatching", "", "An instance has claimed it, and its request may be on its way.", &[]),
    line("dispatching", LEASE_OVER, "The instance that claimed it has not been heard of since its lease ended. Another one puts the call in doubt as soon as it has made sure.", CHECK),
    line("accepted", "", "The leaf has accepted it and has not yet said that it is done.", &[]),
    line("in_doubt", "", "An attempt may have been executed by the leaf, and no confirmation is known. It is looked into next in {due}: the leaf is asked, or sent the same request with the same key where it honours that; it is never just sent again. If you know that the effect exists, say so.", &[Step::Confirm]),
    line("parked", "no_probe", "An attempt may have been executed, and nothing here can find out: there is no probe, and the same request may not be sent again (the leaf honours no idempotency header, or the call was cancelled, is past its deadline, or its batch has ended). Look at the leaf, then say what is true.", SAY),
    line("parked", "probe_unclear", "An attempt may have been executed, and the probes gave no clear answer. Look at the leaf, then say what is true.", SAY),
    line("parked", "template", "A template of its probe or request can't be rendered for this call, so the leaf was not asked. Look at the leaf, then say what is true.", SAY),
    line("parked", "weak_adoption", "What it would undo was adopted without a matcher: it is not surely ours. Look at the leaf. If it is ours, it was not undone yet: say so, and it is.", SAY),
    line("parked", UNDO_TEMPLATE, "Its request, or the probe that asks about it, can't be made: see the error. Mend the configuration; when you then say that it was not executed, the request is made anew.", SAY),
    line("parked", "exists_unmatched", "The leaf says that something of this name exists, and the probe can't tell that it is ours. If it is, confirm; if it is somebody else's, remove it there first.", SAY),
    line("parked", "key_expired", "An attempt may have been executed, and the leaf no longer remembers the idempotency key, so sending again could do it twice. Look at the leaf, then say what is true.", SAY),
    line("parked", "crash_suspect", "Instances went down several times while they worked on this call. Look at the call and at the leaf, then say what is true.", SAY),
    line("parked", "attempts_exhausted", "Its attempts are used up, and the last one may have been executed. Look at the leaf, then say what is true.", SAY),
    line("confirmed", UNDO_DONE, "The effect of call {undoes} is undone: that is on record. Nothing is left to do.", &[]),
    line("confirmed", UNDONE, "Its effect was there, and was undone: both are on record. Nothing is left to do.", &[]),
    line("confirmed", "*", "That the effect exists is on record. Nothing is left to do.", &[]),
    line("failed", "rejected", "The leaf said no. The same request is likely to be refused again, unless what it refused for is gone; a corrected request is a new row.", RETRY),
    line("failed", "attempts_exhausted", "The leaf refused or turned it away as often as max_attempts allows; none of the attempts had an effect.", RETRY),
    line("failed", "gave_up", "It was tried for as long as give_up_after allows; none of the attempts had an effect.", RETRY),
    line("failed", "key_conflict", "Another request with this effect key is confirmed, so this one was not sent: one key means one effect. Insert it under another key, or take the effect back with leafhopper.forget(leaf, key) if it is gone, then retry.", RETRY),
    line("failed", "unsendable", "No request can be made of the row: see the error. Insert it anew without that fault, or change the leaf's configuration and retry.", RETRY),
    line("failed", BATCH_CLOSED, "It failed ({reason}), and it can't be retried: its batch is no longer open, or the phase of this follow-up is over. Insert the work anew in another batch.", SHOW_BATCH),
    line("failed", UNDO_FAILED, "It failed ({reason}): the effect of call {undoes} stands, and the teardown of its batch waits. Send it again, made of what is configured by now; or say that the effect is undone already (confirm); or let the effect stand (waive).", MEND_UNDO),
    line("failed", UNDO_OVER, "It failed ({reason}). The teardown of its batch is over without it.", SHOW_BATCH),
    line("cancelled", UNDO_WAIVED, "It was waived: the effect of call {undoes} stands, and the teardown of its batch went on without it.", SHOW_BATCH),
    line("cancelled", "batch_cancelled", "Its batch was cancelled before it was sent.", SHOW_BATCH),
    line("cancelled", "batch_finished", "It came after the end of its batch, or it is a follow-up whose phase did not come. It was not sent.", SHOW_BATCH),
    line("cancelled", "*", "It was cancelled ({reason}) before the leaf executed anything for it, or what it executed is on record. It is not sent again: insert it anew where it is still wanted.", &[]),
    line("expired", "*", "Its deadline passed before it could be confirmed, and nothing was executed for it, or what was executed is on record. It is not sent again: insert it anew where it is still wanted.", &[]),
];

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
    };
    explain_call(&details.call, around)
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
        operator::{PARKED_REASONS, STATES},
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
