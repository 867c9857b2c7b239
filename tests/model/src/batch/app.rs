//! What the app and people do by themselves: inserts, `cancel_batch()`, `seal()`, `confirm()`, `forget()`, `retry()`.

use super::{
    call,
    protocol::{Broken, Protocol},
    rows::{Batch, Claim, State},
    step::Step,
    world::{CALLS, Cancel, Look, Set, World, is_undo, set_of},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for (call, row) in world.calls.iter().enumerate() {
        if row.state == State::Failed && is_undo(protocol, call) {
            out.push(Step::Retries { call });
        }
        offer_word(protocol, world, call, out);
    }
    for call in protocol.undoable() {
        offer_others(protocol, world, call, out);
    }
    if !world.sealed && !world.is_locked_by_a_look() && world.cancel.is_none() {
        out.push(Step::Seals);
    }
    if world.cancel.is_some() {
        out.push(Step::CancelAborts);
        if !world.cancel_waits() {
            out.push(Step::CancelCommits);
        }
    } else if world.budget.cancels > 0
        && world.batch.is_undecided()
        && !world.is_locked_by_a_look()
        && world.has_room(protocol)
    {
        out.push(Step::CancelBegins);
    }
}

fn offer_word(protocol: &Protocol, world: &World, place: usize, out: &mut Vec<Step>) {
    let call = &world.calls[place];
    if call.word {
        out.push(Step::WordAborts { call: place });
        // The end that gives way is the only word of its batch's failure: the batch's row takes it over.
        let needs_the_row = call.announces;
        if !(needs_the_row && (world.is_locked_by_a_look() || world.cancel.is_some())) {
            out.push(Step::WordCommits { call: place });
        }
    } else if world.budget.words > 0
        && protocol.role(place).is_waited_for()
        && call.claim != Some(Claim::Waits)
        && !call.said
        && (call.state.is_live() || call.state.has_failed())
        && world.has_room(protocol)
    {
        out.push(Step::WordBegins { call: place });
    }
}

/// What the app does to the call's key elsewhere. Calls of a key and its compensation exclude each other.
fn offer_others(protocol: &Protocol, world: &World, call: usize, out: &mut Vec<Step>) {
    let row = &world.calls[call];
    let undo = &world.calls[CALLS + call];
    if undo.state.is_under_way() {
        return;
    }
    if world.budget.forgets > 0 && row.state == State::Confirmed && !row.may_arrive() {
        out.push(Step::Forgets { call });
    }
    let waits = undo.may_arrive() && !protocol.breaks(Broken::RedoneWhileAlive);
    if world.budget.redos > 0 && row.state == State::Undone && !waits {
        out.push(Step::Redoes { call });
    }
}

fn commit_word(protocol: &Protocol, world: &mut World, place: usize) {
    let row = &mut world.calls[place];
    row.word = false;
    if row.state == State::Dispatching {
        // Its attempt will hear of this.
        row.said = true;
        return world.mark();
    }
    let announced = std::mem::take(&mut row.announces);
    call::confirm(protocol, world, place);
    if announced && world.batch.is_undecided() {
        world.move_to(Batch::Cancelling);
    }
}

pub(crate) fn take(protocol: &Protocol, world: &mut World, step: Step) {
    match step {
        Step::Inserts { call } => world.insert(protocol, call),
        Step::Retries { call } => {
            world.calls[call].state = State::Pending;
            world.mark();
        }
        Step::Seals => {
            world.sealed = true;
            if !protocol.breaks(Broken::SealedWithoutMark) {
                world.mark();
            }
        }
        Step::Forgets { call } => {
            // The app is right.
            world.budget.forgets -= 1;
            world.calls[call].stands = false;
            world.calls[call].state = State::Undone;
            world.mark();
        }
        Step::Redoes { call } => {
            world.budget.redos -= 1;
            world.calls[call].redone = true;
        }
        Step::CancelBegins => {
            world.budget.cancels -= 1;
            let settles =
                protocol.breaks(Broken::SettledByTheCancel) && !world.has_live_calls(protocol);
            world.cancel = Some(Cancel { settles });
        }
        Step::CancelCommits => {
            let settles = world.cancel.is_some_and(|cancel| cancel.settles);
            world.cancel = None;
            world.move_to(if settles {
                Batch::Compensating
            } else {
                Batch::Cancelling
            });
        }
        Step::CancelAborts => world.cancel = None,
        Step::WordBegins { call } => {
            world.budget.words -= 1;
            world.calls[call].word = true;
        }
        Step::WordCommits { call } => commit_word(protocol, world, call),
        Step::WordAborts { call } => world.calls[call].word = false,
        _ => {}
    }
}

impl World {
    /// A claim has a call that the cancel is to cancel.
    fn cancel_waits(&self) -> bool {
        self.calls
            .iter()
            .any(|call| call.claim == Some(Claim::Waits))
    }

    /// The ends that somebody has locked.
    pub(crate) fn locked_ends(&self) -> Set {
        set_of(|place| self.calls[place].word)
    }

    /// A claim waits for the cancel, and the cancel for the claim; or a word for a look, and the look for the word.
    #[must_use]
    pub fn waits_in_a_circle(&self, protocol: &Protocol) -> bool {
        let looks = protocol.breaks(Broken::LookWaitsForEnds)
            && self.looks.iter().flatten().any(|look| match look {
                Look::Decided { verdict, .. } => verdict.clear & self.locked_ends() != 0,
                Look::Begun { .. } => false,
            });
        looks || (self.cancel.is_some() && self.cancel_waits())
    }

    /// The batch's row gets its next state, with a mark.
    pub(crate) fn move_to(&mut self, next: Batch) {
        let was_cancelled = !self.batch.is_undecided() && self.batch != Batch::Succeeded;
        self.wrong.left_its_end |= match next {
            Batch::Cancelling => !self.batch.is_undecided(),
            Batch::Compensating | Batch::Cancelled => self.batch == Batch::Succeeded,
            _ => was_cancelled || self.batch == Batch::Succeeded,
        };
        self.batch = next;
        self.announced |= !next.is_undecided() && next != Batch::Succeeded;
        self.mark();
    }
}
