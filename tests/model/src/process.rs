//! The running sidecar: `engine/attempt.rs` from the claim to the send, `engine/lease.rs`, its death; and time, which
//! is an order of events here.

use crate::{
    database::{Work, has},
    protocol::{Broken, Leaf, Protocol},
    step::Step,
    world::{Alive, Attempt, Clock, News, Outcome, Process, Stage, State, World},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for (process, sidecar) in world.processes.iter().enumerate() {
        for (call, attempt) in sidecar.attempts.iter().enumerate() {
            match attempt.map(|attempt| attempt.stage) {
                Some(Stage::Claimed) => out.push(Step::Checks { process, call }),
                Some(Stage::Checked) => out.push(Step::Sends { process, call }),
                Some(Stage::Waiting) if gives_up(world, call, attempt.as_ref()) => {
                    out.push(Step::TimesOut { process, call });
                }
                _ => {}
            }
        }
        let at_work = works(world, process);
        if at_work && world.budget.crashes > 0 {
            out.push(Step::Crashes { process });
        }
        if at_work && sidecar.lease && world.budget.lapses > 0 {
            out.push(Step::Lapses { process });
        }
        if !sidecar.lease {
            out.push(Step::Renews { process });
        }
    }
    offer_time(protocol, world, out);
}

/// The answer can't come any more, or may be given up at a price.
fn gives_up(world: &World, call: usize, attempt: Option<&Attempt>) -> bool {
    let coming = attempt.is_some_and(|attempt| world.wire[call][usize::from(attempt.round)] > 0);
    !coming || world.budget.lost_answers > 0
}

/// It has something to lose.
fn works(world: &World, process: usize) -> bool {
    let holds = world.processes[process]
        .attempts
        .iter()
        .any(Option::is_some);
    holds
        || world
            .open
            .iter()
            .flatten()
            .any(|open| open.by.map(usize::from) == Some(process))
}

fn offer_time(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for instance in 0..world.identities {
        let renews = world
            .processes
            .iter()
            .any(|process| process.id == instance && process.lease);
        if world.lease_runs(instance) && !renews && is_named(world, instance) {
            out.push(Step::LeaseEnds { instance });
        }
    }
    for call in 0..world.rows.len() {
        match world.clocks[call] {
            Clock::Alive if may_be_over(world, call) => out.push(Step::AttemptIsOver { call }),
            Clock::Over if may_settle(world, call) => out.push(Step::Settles { call }),
            _ => {}
        }
    }
    for key in protocol.keys() {
        let remembers = protocol.leaf == Leaf::Deduplicating && !world.windows_over[key];
        if remembers && may_forget_the_key(protocol, world, key) {
            out.push(Step::WindowEnds { key });
        }
    }
}

/// A lease that no row names ends unnoticed.
fn is_named(world: &World, instance: u8) -> bool {
    let claims = world.open.iter().flatten().filter_map(|open| open.claim());
    world
        .rows
        .iter()
        .any(|row| row.state == State::Dispatching && row.instance == instance)
        || claims.into_iter().any(|claim| claim.instance == instance)
}

/// The attempt can act without having been late.
fn is_in_time(process: &Process, attempt: &Attempt) -> bool {
    process.lease && !attempt.stale
}

/// `alive_until` passes: its sender has given up by itself, or is gone, or has been frozen for longer than its lease.
fn may_be_over(world: &World, call: usize) -> bool {
    let row = world.rows[call];
    let latest = |process: &Process, attempt: &Attempt| {
        process.id == row.instance && attempt.round == row.round
    };
    let alive = |process: &Process, attempt: &Attempt| match attempt.stage {
        Stage::Waiting => !attempt.late,
        // Without its lease's end, the time limit alone: a process that is frozen does not notice it.
        Stage::Claimed | Stage::Checked => {
            is_in_time(process, attempt) && row.alive != Alive::TakenFromNobody
        }
        Stage::Ended(_) => false,
    };
    row.state == State::InDoubt
        && !world
            .attempts_of(call)
            .any(|(process, attempt)| latest(process, attempt) && alive(process, attempt))
}

/// `settle` passes: nothing of the call can arrive any more.
fn may_settle(world: &World, call: usize) -> bool {
    let row = world.rows[call];
    // Where the lease's end was not counted, a frozen process can outlast `settle`.
    let frozen = |(process, attempt): (&Process, &Attempt)| {
        let outlasts = row.alive == Alive::TakenFromNobody && is_in_time(process, attempt);
        attempt.stage == Stage::Checked && !outlasts
    };
    matches!(row.state, State::InDoubt | State::Parked)
        && !world.on_the_wire(call)
        && !world.attempts_of(call).any(frozen)
}

/// The leaf's memory ends: longer than an attempt and what of it can be late, from the first claim on.
fn may_forget_the_key(protocol: &Protocol, world: &World, key: usize) -> bool {
    let sent = |(_, attempt): (&Process, &Attempt)| !matches!(attempt.stage, Stage::Ended(_));
    let is_claimed = |call| {
        let mut claims = world.open.iter().flatten().filter_map(|open| open.claim());
        claims.any(|claim| has(claim.found, call))
    };
    let is_quiet =
        |call| !is_claimed(call) && !world.on_the_wire(call) && !world.attempts_of(call).any(sent);
    protocol
        .calls_of(key)
        .any(|call| world.rows[call].state == State::InDoubt)
        && protocol.calls_of(key).all(is_quiet)
}

/// `may_send`, asked last.
pub(crate) fn check(protocol: &Protocol, world: &mut World, process: usize, call: usize) {
    let sidecar = &mut world.processes[process];
    let lease = sidecar.lease;
    if let Some(attempt) = &mut sidecar.attempts[call] {
        let runs = lease && (!attempt.stale || protocol.breaks(Broken::LeaseWithoutTerms));
        attempt.stage = if runs {
            Stage::Checked
        } else {
            Stage::Ended(Outcome::NotExecuted)
        };
    }
}

/// The request is written. What must not be so is looked for here.
pub(crate) fn send(protocol: &Protocol, world: &mut World, process: usize, call: usize) {
    let sidecar = world.processes[process];
    let Some(attempt) = sidecar.attempts[call] else {
        return;
    };
    let key = protocol.key(call);
    let in_time = is_in_time(&sidecar, &attempt);
    let generation = usize::from(attempt.generation) - 1;
    let another = protocol.calls_of(key).any(|other| {
        let is_other =
            |p: &Process, a: &Attempt| (p.id, a.round, other) != (sidecar.id, attempt.round, call);
        let alive = |p: &Process, a: &Attempt| match a.stage {
            Stage::Waiting => !a.late,
            Stage::Checked => is_in_time(p, a),
            Stage::Claimed | Stage::Ended(_) => false,
        };
        world
            .attempts_of(other)
            .any(|(p, a)| is_other(p, a) && alive(p, a))
    });
    let coming = protocol
        .calls_of(key)
        .any(|other| world.wire[other].contains(&attempt.generation));
    let blind = !protocol.resends() && (coming || world.ledger[key][generation] > 0);
    world.wrong.sent_although_it_stood |= attempt.stood;
    world.wrong.sent_beside_another |= another && in_time;
    world.wrong.sent_blindly |= blind;
    if !in_time {
        world.news = Some(News::LateSend);
    }
    world.wire[call][usize::from(attempt.round)] = attempt.generation;
    if let Some(attempt) = &mut world.processes[process].attempts[call] {
        attempt.stage = Stage::Waiting;
        attempt.late = !in_time;
    }
}

/// Its time limit, or a connection that ended: nobody knows.
pub(crate) fn time_out(world: &mut World, process: usize, call: usize) {
    let Some(attempt) = &mut world.processes[process].attempts[call] else {
        return;
    };
    if world.wire[call][usize::from(attempt.round)] > 0 {
        world.budget.lost_answers -= 1;
    }
    attempt.stage = Stage::Ended(Outcome::Doubt);
}

/// It dies, and starts again under a new identity. Its transactions can commit all the same.
pub(crate) fn crash(world: &mut World, process: usize) {
    world.budget.crashes -= 1;
    let id = world.identities;
    world.identities += 1;
    world.leases |= 1 << id;
    world.processes[process] = Process {
        id,
        lease: true,
        ..Process::default()
    };
    orphan(world, process);
}

fn orphan(world: &mut World, process: usize) {
    for open in world
        .open
        .iter_mut()
        .flatten()
        .filter(|open| open.by.map(usize::from) == Some(process))
    {
        open.by = None;
        open.orphan = true;
    }
}

/// Its lease runs out for itself: the database can't be reached, or it is frozen.
pub(crate) fn lapse(world: &mut World, process: usize) {
    world.budget.lapses -= 1;
    let sidecar = &mut world.processes[process];
    sidecar.lease = false;
    for attempt in sidecar.attempts.iter_mut().flatten() {
        attempt.stale = true;
    }
    for open in world
        .open
        .iter_mut()
        .flatten()
        .filter(|open| open.by.map(usize::from) == Some(process))
    {
        if let Work::Claim(claim) = &mut open.work {
            claim.stale = true;
        }
    }
}

/// `engine/heartbeat.rs`: the lease runs again, in a new term.
pub(crate) fn renew(world: &mut World, process: usize) {
    let sidecar = &mut world.processes[process];
    sidecar.lease = true;
    world.leases |= 1 << sidecar.id;
}
