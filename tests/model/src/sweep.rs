//! Claims that nobody works on any more: `sql/queries/reclaim.sql` and `sql/queries/give_back.sql`, from
//! `engine/reclaimer.rs`; and `sql/queries/free_keys.sql`, from `engine/promoter.rs`.

use crate::{
    database::{Transaction, Work, has},
    protocol::{Broken, Protocol},
    step::Step,
    world::{Alive, News, Row, State, World},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for call in 0..world.rows.len() {
        let row = world.rows[call];
        if row.held
            && !world.is_locked(call)
            && !protocol.breaks(Broken::NoSweepOfHeld)
            && is_stale_hold(protocol, world, call)
        {
            out.push(Step::Frees { call });
        }
        if row.state != State::Dispatching || !world.has_room(protocol) || is_under_way(world, call)
        {
            continue;
        }
        if !world.lease_runs(row.instance) {
            out.push(Step::Reclaims { call });
        }
        let lost = |process: &usize| is_lost(world, *process, call);
        if let Some(process) = (0..world.processes.len())
            .find(lost)
            .filter(|_| !protocol.breaks(Broken::NoGiveBack))
        {
            out.push(Step::GivesBack { process, call });
        }
    }
}

fn is_stale_hold(protocol: &Protocol, world: &World, call: usize) -> bool {
    !protocol.others(call).any(|other| {
        let state = world.rows[other].state;
        state.excludes() || (protocol.breaks(Broken::WaitForAnyOther) && state.is_live())
    })
}

/// One sweep of a kind at a time for each call.
fn is_under_way(world: &World, call: usize) -> bool {
    let sweeps =
        |open: &Transaction| matches!(open.work, Work::Reclaim { .. } | Work::GiveBack { .. });
    world
        .open
        .iter()
        .flatten()
        .any(|open| sweeps(open) && open.call() == Some(call))
}

/// This instance's claim that it does not hold: `held.rs` lists what is held before the statement begins, and the
/// rounds whose outcome is not known, which have not committed yet.
fn is_lost(world: &World, process: usize, call: usize) -> bool {
    let sidecar = &world.processes[process];
    let row = world.rows[call];
    row.instance == sidecar.id
        && sidecar.attempts[call].is_none_or(|attempt| attempt.round != row.round)
}

pub(crate) fn begin_reclaim(world: &mut World, call: usize) {
    let Row {
        instance, round, ..
    } = world.rows[call];
    world.begin(
        Work::Reclaim {
            call: u8::try_from(call).unwrap_or_default(),
            instance,
            round,
        },
        None,
    );
}

pub(crate) fn begin_give_back(world: &mut World, process: usize, call: usize) {
    let Row {
        instance, round, ..
    } = world.rows[call];
    let work = Work::GiveBack {
        call: u8::try_from(call).unwrap_or_default(),
        instance,
        round,
    };
    world.begin(work, Some(process));
}

/// The hold was for somebody who is gone: one step, since what it does is harmless whatever it saw.
pub(crate) fn free(world: &mut World, call: usize) {
    world.rows[call].held = false;
}

pub(crate) fn write(protocol: &Protocol, world: &World, open: &mut Transaction) -> bool {
    let Some(call) = open.call().filter(|call| !world.is_locked(*call)) else {
        return false;
    };
    let row = world.rows[call];
    if row.state != State::Dispatching {
        return false;
    }
    let is_claim = |instance, round| (row.instance, row.round) == (instance, round);
    open.row = match open.work {
        Work::GiveBack {
            instance, round, ..
        } => is_claim(instance, round).then(|| given_back(row)),
        Work::Reclaim {
            instance, round, ..
        } => (is_claim(instance, round) || protocol.breaks(Broken::TakeoverOfAnyClaim))
            .then(|| reclaimed(protocol, row, instance)),
        _ => None,
    };
    if open.row.is_some() {
        open.locked |= 1 << call;
    }
    open.row.is_some()
}

fn given_back(row: Row) -> Row {
    let state = if row.doubtful {
        State::InDoubt
    } else {
        State::Pending
    };
    Row {
        state,
        resend: false,
        asked: false,
        tries: row.tries - 1,
        ..row
    }
}

/// The row is tested again with the instance that the snapshot joined to it. A claim of another instance matches none,
/// as in a LEFT JOIN without a partner: it is taken for one whose instance is gone.
fn reclaimed(protocol: &Protocol, row: Row, instance: u8) -> Row {
    let alive = if row.instance == instance {
        Alive::TakenOver
    } else {
        Alive::TakenFromNobody
    };
    let state = if protocol.breaks(Broken::ResendOnExpiry) {
        State::Pending
    } else {
        State::InDoubt
    };
    let doubtful = state == State::InDoubt;
    Row {
        state,
        doubtful,
        resend: false,
        asked: false,
        alive,
        ..row
    }
}

pub(crate) fn commit(world: &mut World, open: &Transaction) {
    world.news = Some(match (open.work, open.row) {
        (Work::GiveBack { .. }, _) => News::GivenBack,
        (_, Some(row)) if has(world.leases, usize::from(row.instance)) => News::TakenFromALiveOne,
        _ => News::TakenOver,
    });
}
