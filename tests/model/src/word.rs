//! Somebody's word: `leafhopper.confirm()`, `forget()` and `resolve_not_executed()`, of `0003_functions.sql`.

use crate::{
    database::{Transaction, Work, calls, has, set_of},
    protocol::{Broken, Protocol},
    step::Step,
    world::{Clock, Effect, Row, Stage, State, World},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for key in protocol.keys() {
        if !world.has_room(protocol) {
            break;
        }
        let standing = world.effects[key].standing().is_some();
        let known = protocol
            .calls_of(key)
            .any(|call| world.rows[call].state != State::Unseen);
        if world.budget.confirms > 0 && known && !standing {
            out.push(Step::Confirms { key });
        }
        let blocked = protocol
            .calls_of(key)
            .any(|call| world.rows[call].state.excludes());
        if world.budget.forgets > 0
            && standing
            && !blocked
            && (protocol.breaks(Broken::ForgetWhileAlive) || is_quiet(protocol, world, key))
        {
            out.push(Step::Forgets { key });
        }
    }
    for call in 0..world.rows.len() {
        if world.rows[call].state == State::Parked
            && !world.is_locked(call)
            && is_not_executed(protocol, world, call)
        {
            out.push(Step::NotExecuted { call });
        }
    }
}

/// No attempt of the key is alive or about to be, and none can arrive.
fn is_quiet(protocol: &Protocol, world: &World, key: usize) -> bool {
    protocol.calls_of(key).all(|call| {
        let sent = |stage| matches!(stage, Stage::Claimed | Stage::Checked | Stage::Waiting);
        let mut claims = world.open.iter().flatten().filter_map(|open| open.claim());
        !claims.any(|claim| has(claim.found, call))
            && !world.on_the_wire(call)
            && !world
                .attempts_of(call)
                .any(|(_, attempt)| sent(attempt.stage))
    })
}

/// A person who says so has looked, and has waited long enough.
fn is_not_executed(protocol: &Protocol, world: &World, call: usize) -> bool {
    let key = protocol.key(call);
    let generation = usize::from(world.effects[key].next());
    world.clocks[call] == Clock::Settled && world.ledger[key][generation - 1] == 0
}

pub(crate) fn begin_confirm(world: &mut World, key: usize) {
    world.budget.confirms -= 1;
    world.begin(
        Work::Confirm {
            key: u8::try_from(key).unwrap_or_default(),
        },
        None,
    );
}

pub(crate) fn begin_forget(world: &mut World, key: usize) {
    world.budget.forgets -= 1;
    world.begin(
        Work::Forget {
            key: u8::try_from(key).unwrap_or_default(),
        },
        None,
    );
}

/// Each statement of a function has a snapshot of its own. So what is read here is what is committed here.
pub(crate) fn write(protocol: &Protocol, world: &World, open: &mut Transaction) -> bool {
    match open.work {
        Work::Confirm { key } => {
            let key = usize::from(key);
            let effect = world.effects[key];
            if effect.standing().is_some() {
                return false;
            }
            open.locked =
                set_of(|call| protocol.key(call) == key && world.rows[call].state.is_live());
            open.effect = Some(Effect {
                generation: effect.next(),
                undone: false,
                words: effect.words | 1 << effect.next(),
            });
            true
        }
        Work::Forget { key } => {
            let effect = world.effects[usize::from(key)];
            open.effect = effect.standing().map(|_| Effect {
                undone: true,
                ..effect
            });
            open.effect.is_some()
        }
        _ => false,
    }
}

pub(crate) fn commit(world: &mut World, open: &Transaction) {
    let generation = open.effect.map_or(0, |effect| effect.generation);
    for call in calls(open.locked) {
        // What is dispatching is answered when its attempt is recorded.
        if world.rows[call].state != State::Dispatching {
            world.rows[call] = Row::ended(State::Confirmed, generation);
        }
    }
}

/// `resolve_not_executed()`, in one step: it waits for the row's lock and then nobody is in its way.
pub(crate) fn not_executed(world: &mut World, call: usize) {
    let row = world.rows[call];
    world.rows[call] = Row {
        state: State::Pending,
        doubtful: false,
        resend: false,
        asked: false,
        ..row
    };
}
