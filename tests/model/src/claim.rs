//! The claim: `sql/queries/claim.sql` and `sql/queries/prior.sql` in one transaction, from `engine/dispatcher.rs`.
//!
//! `ClaimBegins` is the first statement's snapshot, `ClaimLocks` its FOR UPDATE SKIP LOCKED, `ClaimWrites` its
//! updates, which meet the unique index, `ClaimLooks` the second statement, `Commits` the commit.

use crate::{
    database::{Claim, Index, Phase, Transaction, Work, calls, has, set_of},
    protocol::{Broken, Protocol},
    step::Step,
    world::{Alive, Attempt, Clock, News, Outcome, Row, Stage, State, World},
};

/// Whether a call in doubt may be looked at by now.
#[must_use]
pub fn is_due(world: &World, call: usize) -> bool {
    let row = world.rows[call];
    let taken_over = matches!(row.alive, Alive::TakenOver | Alive::TakenFromNobody);
    row.state == State::InDoubt && !row.asked && (!taken_over || world.clocks[call] != Clock::Alive)
}

/// What `fresh` and `timed` find.
fn is_pending(_: &Protocol, world: &World, call: usize) -> bool {
    world.rows[call].state == State::Pending && !world.rows[call].held
}

/// What `doubt` finds.
fn is_to_be_resent(protocol: &Protocol, world: &World, call: usize) -> bool {
    world.rows[call].resend && is_due(world, call) && !world.windows_over[protocol.key(call)]
}

fn is_claimable(protocol: &Protocol, world: &World, call: usize) -> bool {
    is_pending(protocol, world, call) || is_to_be_resent(protocol, world, call)
}

/// What a process would find; a call of which it still has an attempt to record is left to the other one.
fn found(protocol: &Protocol, world: &World, process: usize) -> u8 {
    let attempts = &world.processes[process].attempts;
    set_of(|call| attempts[call].is_none() && is_claimable(protocol, world, call))
}

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    if !world.has_room(protocol) {
        return;
    }
    for (process, sidecar) in world.processes.iter().enumerate() {
        let claims = |open: &Transaction| {
            open.claim().is_some() && open.by.map(usize::from) == Some(process)
        };
        let one_at_a_time = !world.open.iter().flatten().any(claims);
        let leased = sidecar.lease && world.lease_runs(sidecar.id);
        if one_at_a_time && leased && found(protocol, world, process) != 0 {
            out.push(Step::ClaimBegins { process });
        }
    }
}

pub(crate) fn begin(protocol: &Protocol, world: &mut World, process: usize) {
    let waits = |call: usize| {
        protocol.others(call).any(|other| {
            let state = world.rows[other].state;
            state.excludes() || (protocol.breaks(Broken::WaitForAnyOther) && state.is_live())
        })
    };
    let mut claim = Claim {
        instance: world.processes[process].id,
        found: found(protocol, world, process),
        busy: set_of(waits),
        ..Claim::default()
    };
    if protocol.breaks(Broken::PriorInTheClaimsSnapshot) {
        look(protocol, world, &mut claim, u8::MAX);
    }
    world.begin(Work::Claim(claim), Some(process));
}

/// FOR UPDATE SKIP LOCKED with its LIMIT, for fresh calls and for doubts.
pub(crate) fn lock(protocol: &Protocol, world: &mut World, slot: usize) {
    let Some(mut open) = world.open[slot] else {
        return;
    };
    let Work::Claim(mut claim) = open.work else {
        return;
    };
    let kinds: [fn(&Protocol, &World, usize) -> bool; 2] = [is_pending, is_to_be_resent];
    for is_of_kind in kinds {
        let mut left = protocol.slots;
        for call in calls(claim.found) {
            if left > 0 && !world.is_locked(call) && is_of_kind(protocol, world, call) {
                open.locked |= 1 << call;
                left -= 1;
            }
        }
    }
    if open.locked == 0 {
        return world.roll_back(slot);
    }
    claim.stood = set_of(|call| world.effects[protocol.key(call)].standing().is_some());
    open.work = Work::Claim(claim);
    open.phase = Phase::Locked;
    world.open[slot] = Some(open);
}

/// What a claim does with the rows that it has locked: `candidate`, `judged`, `turn`, `stays`.
fn judge(protocol: &Protocol, world: &World, locked: u8, claim: &Claim) -> (u8, u8) {
    let (mut taken, mut held, mut left) = (0, 0, protocol.slots);
    // Fresh ones come before doubts where both are first of their kind.
    let mut heads: Vec<usize> = protocol
        .keys()
        .filter_map(|key| head(protocol, world, locked, key))
        .collect();
    heads.sort_by_key(|head| world.rows[*head].state == State::InDoubt);
    for head in heads {
        let fresh = world.rows[head].state == State::Pending;
        let rest =
            calls(locked).filter(|call| *call != head && protocol.key(*call) == protocol.key(head));
        let rest = rest.fold(0, |set: u8, call| set | 1 << call);
        if fresh && has(claim.busy, head) {
            held |= rest | 1 << head;
        } else if left > 0 {
            left -= 1;
            taken |= 1 << head;
            held |= rest;
        }
    }
    (taken, held)
}

/// One row for each key: the one in doubt, or else the lowest id.
fn head(protocol: &Protocol, world: &World, locked: u8, key: usize) -> Option<usize> {
    calls(locked)
        .filter(|call| protocol.key(*call) == key)
        .min_by_key(|call| (world.rows[*call].state != State::InDoubt, *call))
}

/// What the index says to all that a claim takes.
fn index(protocol: &Protocol, world: &World, slot: usize, taken: u8) -> Index {
    let answers: Vec<Index> = calls(taken)
        .map(|call| world.index(protocol, slot, call))
        .collect();
    if answers.contains(&Index::Violated) {
        Index::Violated
    } else if answers.contains(&Index::Wait) {
        Index::Wait
    } else {
        Index::Free
    }
}

pub(crate) fn offer_write(
    protocol: &Protocol,
    world: &World,
    slot: usize,
    claim: &Claim,
    out: &mut Vec<Step>,
) {
    let locked = world.open[slot].map_or(0, |open| open.locked);
    let (taken, _) = judge(protocol, world, locked, claim);
    out.push(match index(protocol, world, slot, taken) {
        // Until the other ends, or the lock_timeout does.
        Index::Wait => Step::Aborts { slot },
        Index::Free | Index::Violated => Step::ClaimWrites { slot },
    });
}

pub(crate) fn write(protocol: &Protocol, world: &mut World, slot: usize) {
    let Some(mut open) = world.open[slot] else {
        return;
    };
    let Work::Claim(mut claim) = open.work else {
        return;
    };
    (claim.taken, claim.held) = judge(protocol, world, open.locked, &claim);
    if index(protocol, world, slot, claim.taken) == Index::Violated {
        world.news = Some(News::MetInTheIndex);
        return world.roll_back(slot);
    }
    if claim.taken | claim.held == 0 {
        return world.roll_back(slot);
    }
    open.work = Work::Claim(claim);
    open.phase = Phase::Written;
    world.open[slot] = Some(open);
}

/// The second statement: what stands for the taken calls.
pub(crate) fn look_for_priors(protocol: &Protocol, world: &mut World, slot: usize) {
    let Some(mut open) = world.open[slot] else {
        return;
    };
    let Work::Claim(mut claim) = open.work else {
        return;
    };
    let taken = claim.taken;
    if !protocol.breaks(Broken::PriorInTheClaimsSnapshot) {
        look(protocol, world, &mut claim, taken);
    }
    let standing = set_of(|call| world.effects[protocol.key(call)].standing().is_some());
    claim.stood &= standing & taken;
    open.work = Work::Claim(claim);
    open.phase = Phase::Looked;
    world.open[slot] = Some(open);
}

fn look(protocol: &Protocol, world: &World, claim: &mut Claim, of: u8) {
    for call in calls(of) {
        let effect = world.effects[protocol.key(call)];
        claim.prior[call] = effect.standing().unwrap_or(0);
        claim.generation[call] = effect.next();
    }
}

pub(crate) fn commit(world: &mut World, open: &Transaction, claim: &Claim) {
    for call in calls(claim.held) {
        world.rows[call].held = true;
    }
    for call in calls(claim.taken) {
        let before = world.rows[call];
        let round = before.round + 1;
        world.rows[call] = Row {
            state: State::Dispatching,
            resend: false,
            alive: Alive::Claimed,
            instance: claim.instance,
            round,
            tries: before.tries + 1,
            ..before
        };
        world.clocks[call] = Clock::Alive;
        let Some(process) = open.by else { continue };
        let stage = match claim.prior[call] {
            0 => Stage::Claimed,
            prior => Stage::Ended(Outcome::Prior(prior)),
        };
        world.processes[usize::from(process)].attempts[call] = Some(Attempt {
            round,
            doubtful: before.doubtful,
            stale: claim.stale,
            late: false,
            stage,
            generation: claim.generation[call],
            known: false,
            stood: has(claim.stood, call),
        });
    }
}
