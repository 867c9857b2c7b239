//! A call of a batch: claim, attempt, record, doubt, end. A compensation and a follow-up are calls as well.

use super::{
    protocol::{Broken, Protocol, Role},
    rows::{Attempt, Batch, Call, Claim, Ending, Kind, State, Wire},
    step::Step,
    world::{ALWAYS, News, World, is_undo},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, place: usize, out: &mut Vec<Step>) {
    let role = protocol.role(place);
    let call = &world.calls[place];
    let offered = out.len();
    match (role, call.state) {
        (Role::Unused, _) | (Role::Undo(_), State::Unseen) => return,
        (_, State::Unseen) => out.push(Step::Inserts { call: place }),
        _ => {}
    }
    offer_claim(protocol, world, place, out);
    offer_attempt(world, place, out);
    offer_doubt(protocol, world, place, out);
    offer_end(protocol, world, place, out);
    offer_wire(protocol, place, call, out);
    if is_swept(protocol, world, place) {
        out.push(Step::Sweeps { call: place });
    }
    if call.word {
        let mut at = 0;
        out.retain(|step| {
            at += 1;
            at <= offered || !step.skips_locked()
        });
    }
}

/// What a claim's second test of the row asks for.
fn is_due(protocol: &Protocol, world: &World, place: usize) -> bool {
    let call = &world.calls[place];
    match call.state {
        State::Pending => !call.held,
        State::InDoubt => protocol.resends && !protocol.role(place).follows(),
        _ => false,
    }
}

/// What a claim's snapshot asks for, but for the batch.
fn is_found(protocol: &Protocol, world: &World, place: usize) -> bool {
    let waits = match protocol.role(place) {
        Role::Undo(of) => {
            world.calls[of].may_arrive() && !protocol.breaks(Broken::UndoneWhileAlive)
        }
        _ => false,
    };
    is_due(protocol, world, place) && !waits
}

fn offer_claim(protocol: &Protocol, world: &World, call: usize, out: &mut Vec<Step>) {
    let of_the_batch = protocol.role(call).is_waited_for();
    let open = world.batch.is_open() && !world.is_announced();
    let looks_first = of_the_batch && protocol.breaks(Broken::BatchLookedAtFirst);
    let waits = of_the_batch && protocol.breaks(Broken::ClaimWaitsForTheBatch);
    let Some(claim) = world.calls[call].claim else {
        if !world.has_room(protocol) {
            return;
        }
        if looks_first && open {
            let can_be_found = matches!(world.calls[call].state, State::Unseen | State::Pending);
            if can_be_found {
                out.push(Step::ClaimLooks { call });
            }
        } else if !looks_first
            && is_found(protocol, world, call)
            && (open || !of_the_batch || waits)
        {
            out.push(Step::ClaimBegins { call });
        }
        return;
    };
    out.push(Step::ClaimAborts { call });
    match claim {
        Claim::LookedAtTheBatch if is_found(protocol, world, call) => {
            out.push(Step::ClaimBegins { call });
        }
        Claim::Found { .. } if is_due(protocol, world, call) => out.push(if waits {
            Step::ClaimWaits { call }
        } else {
            Step::ClaimCommits { call }
        }),
        // It reads the batch's row once it has it.
        Claim::Waits if world.cancel.is_none() && open && is_due(protocol, world, call) => {
            out.push(Step::ClaimCommits { call })
        }
        _ => {}
    }
}

fn offer_attempt(world: &World, place: usize, out: &mut Vec<Step>) {
    let call = &world.calls[place];
    match call.attempt {
        Some(Attempt::Sent) => {
            out.push(Step::Executes { call: place });
            if world.budget.refusals > 0 {
                out.push(Step::Refuses { call: place });
            }
        }
        Some(Attempt::Confirmed) => out.push(Step::Records { call: place }),
        // Somebody else has ended the call: it is history.
        Some(Attempt::Refused) if call.state != State::Dispatching => {
            out.push(Step::Records { call: place });
        }
        Some(Attempt::Refused) => {}
        None if call.state == State::Dispatching => out.push(Step::TakesOver { call: place }),
        None => {}
    }
    if call.attempt.is_some() && world.budget.deaths > 0 {
        out.push(Step::Dies { call: place });
    }
}

/// The state in which a doubt is resolved.
fn asked(protocol: &Protocol) -> State {
    if protocol.parks {
        State::Parked
    } else {
        State::InDoubt
    }
}

/// What a probe or a person says: it was executed. A compensation was if what it undoes is gone.
fn was_executed(protocol: &Protocol, world: &World, place: usize) -> bool {
    match protocol.role(place) {
        Role::Undo(of) => !world.calls[of].stands,
        _ => world.calls[place].stands,
    }
}

fn offer_doubt(protocol: &Protocol, world: &World, place: usize, out: &mut Vec<Step>) {
    let state = world.calls[place].state;
    let is_sent_again = protocol.resends
        && match protocol.role(place) {
            Role::Undo(_) => true,
            role => role.is_waited_for() && world.batch.is_open(),
        };
    if state == State::InDoubt && protocol.parks && !is_sent_again {
        out.push(Step::Parks { call: place });
    }
    let is_answered =
        world.calls[place].said && state.is_under_way() && state != State::Dispatching;
    if is_answered || (state == asked(protocol) && was_executed(protocol, world, place)) {
        out.push(Step::Adopts { call: place });
    }
}

fn offer_end(protocol: &Protocol, world: &World, place: usize, out: &mut Vec<Step>) {
    let call = &world.calls[place];
    if let Some(ending) = call.ending {
        out.push(Step::EndAborts { call: place });
        let stays = match ending.kind {
            Kind::Refused => {
                call.state == State::Dispatching && call.attempt == Some(Attempt::Refused)
            }
            Kind::Expired => call.state == State::Pending,
            Kind::NotExecuted => call.state == asked(protocol),
        };
        if stays {
            out.push(Step::EndCommits { call: place });
        }
        return;
    }
    if !world.has_room(protocol) {
        return;
    }
    let settled = call.wire != Wire::Request || world.budget.late > 0;
    let kind = match call.state {
        State::Dispatching if call.attempt == Some(Attempt::Refused) => Kind::Refused,
        State::Pending if may_expire(protocol, world, place) => Kind::Expired,
        state if state == asked(protocol) && settled && !was_executed(protocol, world, place) => {
            Kind::NotExecuted
        }
        _ => return,
    };
    out.push(Step::EndBegins { call: place, kind });
}

/// It waits for the look of a batch that is closing: it may be too late for that.
fn may_expire(protocol: &Protocol, world: &World, place: usize) -> bool {
    let waits = world.batch == Batch::Closing && !protocol.breaks(Broken::EndedWhileClosing);
    world.budget.expiries > 0 && protocol.role(place).is_waited_for() && !waits
}

fn offer_wire(protocol: &Protocol, place: usize, call: &Call, out: &mut Vec<Step>) {
    let has_result = matches!(call.state, State::Confirmed | State::Undone);
    match call.wire {
        Wire::Empty => {}
        Wire::Request => {
            out.push(Step::Lands { call: place });
            out.push(Step::Vanishes { call: place });
            // Its process lives, and was taken for dead.
            if protocol.resends && !is_undo(protocol, place) {
                out.push(Step::LandsHeard { call: place });
            }
        }
        Wire::Forgotten => {
            out.push(Step::Vanishes { call: place });
            if is_undo(protocol, place) {
                out.push(Step::Lands { call: place });
            } else if !has_result {
                out.push(Step::LandsHeard { call: place });
            }
        }
    }
    if call.heard && (!call.announces || protocol.breaks(Broken::AnnouncementGivesWay)) {
        out.push(Step::RecordsLate { call: place });
    }
}

/// A waiting call of a batch that is decided, or is about to be.
fn is_swept(protocol: &Protocol, world: &World, place: usize) -> bool {
    let is_over = if protocol.breaks(Broken::SweptWhileCancelling) {
        world.batch == Batch::Cancelling
    } else {
        !world.batch.is_undecided()
    };
    world.calls[place].state == State::Pending
        && protocol.role(place).is_waited_for()
        && (is_over || world.is_announced())
}

pub(crate) fn take(protocol: &Protocol, world: &mut World, step: Step) {
    match step {
        Step::ClaimLooks { call }
        | Step::ClaimBegins { call }
        | Step::ClaimWaits { call }
        | Step::ClaimCommits { call }
        | Step::ClaimAborts { call } => take_claim(protocol, world, call, step),
        Step::Executes { call } => {
            make_effect(protocol, world, call);
            world.calls[call].attempt = Some(Attempt::Confirmed);
        }
        Step::Refuses { call } => {
            world.budget.refusals -= 1;
            world.calls[call].attempt = Some(Attempt::Refused);
        }
        Step::Dies { call } => die(world, call),
        Step::Records { call } => {
            let confirms = world.calls[call].attempt.take() == Some(Attempt::Confirmed);
            if confirms && world.calls[call].state == State::Dispatching {
                confirm(protocol, world, call);
            }
        }
        Step::EndBegins { call, kind } => begin_end(protocol, world, call, kind),
        Step::EndCommits { call } => commit_end(protocol, world, call),
        Step::EndAborts { call } => world.calls[call].ending = None,
        Step::TakesOver { call } => {
            world.calls[call].state = State::InDoubt;
            world.calls[call].doubtful = true;
        }
        Step::Parks { call } => world.calls[call].state = State::Parked,
        Step::Adopts { call } => {
            if is_undo(protocol, call) {
                world.news = Some(News::FoundUndone);
            }
            confirm(protocol, world, call);
        }
        Step::Sweeps { call } => end(protocol, world, call, State::Cancelled),
        Step::Lands { call } | Step::LandsHeard { call } => {
            world.calls[call].wire = Wire::Empty;
            make_effect(protocol, world, call);
            world.calls[call].heard |= matches!(step, Step::LandsHeard { .. });
        }
        Step::Vanishes { call } => world.calls[call].wire = Wire::Empty,
        Step::RecordsLate { call } => {
            world.calls[call].heard = false;
            if !matches!(world.calls[call].state, State::Confirmed | State::Undone) {
                world.news = Some(News::HeardLate);
                world.calls[call].announces = false;
                confirm(protocol, world, call);
            }
        }
        _ => {}
    }
}

fn take_claim(protocol: &Protocol, world: &mut World, place: usize, step: Step) {
    let late = world.announced;
    let has_nothing_to_do = is_in_vain(protocol, world, place);
    let call = &mut world.calls[place];
    match step {
        Step::ClaimLooks { .. } => call.claim = Some(Claim::LookedAtTheBatch),
        Step::ClaimBegins { .. } => call.claim = Some(Claim::Found { late }),
        Step::ClaimWaits { .. } => call.claim = Some(Claim::Waits),
        Step::ClaimCommits { .. } if has_nothing_to_do => {
            call.claim = None;
            end(protocol, world, place, State::Confirmed);
            world.news = Some(News::NothingToUndo);
        }
        Step::ClaimCommits { .. } => {
            let late = call.claim.take() == Some(Claim::Found { late: true });
            call.state = State::Dispatching;
            call.attempt = Some(Attempt::Sent);
            call.claimed = true;
            world.wrong.claimed_after_the_cancel |= late && protocol.role(place).is_waited_for();
        }
        _ => call.claim = None,
    }
}

/// Its second statement finds that what a compensation is to undo does not stand any more.
fn is_in_vain(protocol: &Protocol, world: &World, place: usize) -> bool {
    match protocol.role(place) {
        Role::Undo(of) => {
            world.calls[of].state != State::Confirmed && !protocol.breaks(Broken::UndoneUnasked)
        }
        _ => false,
    }
}

/// The leaf does what it is asked.
fn make_effect(protocol: &Protocol, world: &mut World, place: usize) {
    match protocol.role(place) {
        Role::Undo(of) => {
            world.calls[of].stands = false;
            world.wrong.undid_anothers |= std::mem::take(&mut world.calls[of].redone);
        }
        _ => world.calls[place].stands = true,
    }
}

/// With its process goes what the attempt knows. Its request can be on its way, or not.
fn die(world: &mut World, place: usize) {
    if world.budget.deaths < ALWAYS {
        world.budget.deaths -= 1;
    }
    let call = &mut world.calls[place];
    if call.attempt.take() == Some(Attempt::Sent) {
        call.wire = Wire::Request;
    }
}

/// The result appears, and the call leaves its table. A compensation sets `undone_at` with that.
pub(crate) fn confirm(protocol: &Protocol, world: &mut World, place: usize) {
    end(protocol, world, place, State::Confirmed);
    if let Role::Undo(of) = protocol.role(place)
        && world.calls[of].state == State::Confirmed
    {
        world.calls[of].state = State::Undone;
    }
}

/// The call ends, with its mark.
fn end(protocol: &Protocol, world: &mut World, place: usize, state: State) {
    let call = &mut world.calls[place];
    call.state = state;
    call.held = false;
    call.doubtful = false;
    call.said = false;
    if protocol.breaks(Broken::CountedLiveCalls) {
        world.count -= i8::from(protocol.role(place).is_waited_for());
    }
    world.mark();
}

fn begin_end(protocol: &Protocol, world: &mut World, place: usize, kind: Kind) {
    let undecided = if protocol.breaks(Broken::ClosingCountsAsOver) {
        world.batch.is_open()
    } else {
        world.batch.is_undecided()
    };
    let call = &mut world.calls[place];
    match kind {
        Kind::Expired => world.budget.expiries -= 1,
        Kind::NotExecuted if call.wire == Wire::Request => {
            world.budget.late -= 1;
            call.wire = Wire::Forgotten;
        }
        _ => {}
    }
    call.ending = Some(Ending { kind, undecided });
}

fn commit_end(protocol: &Protocol, world: &mut World, place: usize) {
    let Some(Ending { kind, undecided }) = world.calls[place].ending.take() else {
        return;
    };
    let of_the_batch = protocol.role(place).is_waited_for();
    if world.calls[place].said {
        world.calls[place].attempt = None;
        return confirm(protocol, world, place);
    }
    if kind == Kind::NotExecuted {
        if undecided || !of_the_batch {
            world.calls[place].state = State::Pending;
            world.calls[place].doubtful = false;
        } else {
            end(protocol, world, place, State::Cancelled);
            world.news = Some(News::DoubtCancelled);
        }
        return;
    }
    world.calls[place].attempt = None;
    if world.calls[place].doubtful && !protocol.breaks(Broken::RefusalEndsTheDoubt) {
        // It says nothing about the request before it.
        world.calls[place].state = State::Parked;
        return;
    }
    end(protocol, world, place, State::Failed);
    if of_the_batch && undecided {
        world.calls[place].announces = true;
        if world.batch.is_undecided() {
            world.announced = true;
        } else {
            world.news = Some(News::AnnouncedLate);
        }
    }
}
