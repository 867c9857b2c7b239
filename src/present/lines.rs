//! The table of what is said of a call in each state, for each reason, with the steps that would move it.

use super::remedy::Remedy;
use crate::store::operator::{CallRow, leaves::Treatment};

/// A [`Remedy`] before it is known for which call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
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
    pub(super) fn of(self, call: &CallRow) -> Option<Remedy> {
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

pub(super) struct Line {
    pub(super) state: &'static str,
    /// `""`: none. `"*"`: whatever it is, the words have it.
    pub(super) reason: &'static str,
    pub(super) why: &'static str,
    pub(super) steps: &'static [Step],
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
pub(super) const NOT_BEFORE: &str = "(not yet)";
pub(super) const NOT_SENT: &str = "(not sent)";
pub(super) const OVERDUE: &str = "(overdue)";
pub(super) const NO_INSTANCE: &str = "(no instance)";
pub(super) const LEASE_OVER: &str = "(lease over)";
pub(super) const HEAD_ENDED: &str = "(head ended)";
/// Of a breaker that is open, where it is known why.
pub(super) const TOKEN_REFUSED: &str = "(token refused)";
pub(super) const UNREACHABLE: &str = "(unreachable)";
pub(super) const BATCH_CLOSED: &str = "(batch closed)";
/// The same of compensations.
pub(super) const UNDO_REMADE: &str = "(undo remade)";
pub(super) const UNDO_TEMPLATE: &str = "(undo template)";
pub(super) const UNDO_FAILED: &str = "(undo failed)";
pub(super) const UNDO_OVER: &str = "(undo over)";
pub(super) const UNDO_DONE: &str = "(undo done)";
/// Of a call whose effect was undone.
pub(super) const UNDONE: &str = "(undone)";
pub(super) const UNDO_WAIVED: &str = "(undo waived)";

#[rustfmt::skip]
pub(super) const LINES: &[Line] = &[
    line("pending", "", "It is its turn: an instance takes it as soon as it has a free slot for leaf {leaf}. One that was killed keeps its slots until its lease has ended, unless `dispatch.state_dir` is set.", &[]),
    line("pending", NO_INSTANCE, "No instance is running: start `leafhopper run`, and look why it ended.", CHECK),
    line("pending", NOT_BEFORE, "It is not due yet: it goes in {due}.", &[]),
    line("pending", OVERDUE, "It is due and nobody sends it: the instances are down, or busy with calls before it. One that was killed keeps its slots until its lease has ended.", CHECK),
    line("pending", "leaf_unknown", "No running instance knows a leaf {leaf}: start `leafhopper run` with a configuration that has [leaf.{leaf}], or add it there and send SIGHUP (kill -HUP $(pidof leafhopper)). If the name is a mistake, cancel the call.", CANCEL),
    line("pending", "leaf_paused", "Leaf {leaf} is paused: nothing is sent to it until it is resumed.", RESUME),
    line("pending", "credential_unknown", "No running instance has the credential that the call names: add a file of that name to the folder `credentials` of leaf {leaf}; it is noticed within 5 s.", CANCEL),
    line("pending", "breaker_open", "Leaf {leaf} refuses its token, or could not be reached five times in a row: the sidecar's log says which. Put a new token in place, or wait until the leaf is back: one call every 30 s tries. Once it is mended, resuming lets all go at once.", RESUME),
    line("pending", TOKEN_REFUSED, "Leaf {leaf} {refuses} {token}. Put a new one where the configuration takes it: a file is read again within 5 s; a variable of the environment needs a restart of the sidecar. After that the calls go by themselves; resuming lets them go at once, and does no good before.", RESUME),
    line("pending", UNREACHABLE, "Leaf {leaf} could not be reached five times in a row: one call every 30 s tries whether it is back. `leafhopper check` says whether it accepts connections. Resuming lets all go at once.", RESUME),
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
