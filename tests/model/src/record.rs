//! Recording an attempt: `sql/queries/record_confirmed.sql` and `sql/queries/record_other.sql`, from
//! `engine/recorder.rs`; what is recorded is `decide` of `domain/decision.rs`.

use crate::{
    database::{Transaction, Work},
    protocol::{Broken, Leaf, Protocol},
    step::Step,
    world::{Alive, Attempt, Clock, Effect, News, Outcome, Row, Stage, State, World},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    if !world.has_room(protocol) {
        return;
    }
    for (process, sidecar) in world.processes.iter().enumerate() {
        for (call, attempt) in sidecar.attempts.iter().enumerate() {
            let Some(Attempt {
                stage: Stage::Ended(_),
                round,
                ..
            }) = attempt
            else {
                continue;
            };
            let under_way = world.open.iter().flatten().any(|open| {
                open.by.map(usize::from) == Some(process)
                    && matches!(open.work, Work::Record { attempt, .. } if attempt.round == *round)
                    && open.call() == Some(call)
            });
            if !under_way {
                out.push(Step::Records { process, call });
            }
        }
    }
}

pub(crate) fn begin(protocol: &Protocol, world: &mut World, process: usize, call: usize) {
    let sidecar = world.processes[process];
    let Some(attempt) = sidecar.attempts[call] else {
        return;
    };
    let work = Work::Record {
        call: u8::try_from(call).unwrap_or_default(),
        instance: sidecar.id,
        attempt,
        generation: world.effects[protocol.key(call)].next(),
    };
    world.begin(work, Some(process));
}

pub(crate) fn write(protocol: &Protocol, world: &World, open: &mut Transaction) -> bool {
    let Work::Record {
        call,
        instance,
        attempt,
        generation,
    } = open.work
    else {
        return false;
    };
    let Stage::Ended(outcome) = attempt.stage else {
        return false;
    };
    let call = usize::from(call);
    let row = world.rows[call];
    if row.state.is_live() {
        let effect = world.effects[protocol.key(call)];
        let decides = decides(protocol, row, instance, &attempt, outcome);
        if outcome == Outcome::Confirmed
            && (decides || !protocol.breaks(Broken::ConfirmationOfTheClaimOnly))
        {
            // Whatever state it is in; ON CONFLICT (leaf, key, generation) DO NOTHING.
            if effect.generation < generation {
                open.effect = Some(Effect {
                    generation,
                    undone: false,
                    ..effect
                });
            }
            open.row = Some(Row::ended(State::Confirmed, generation));
        } else if decides && !attempt.known {
            open.row = Some(match (effect.standing(), outcome) {
                (Some(standing), _) | (None, Outcome::Prior(standing)) => {
                    Row::ended(State::Confirmed, standing)
                }
                (None, outcome) => moved(protocol, row, &attempt, outcome),
            });
        }
        if open.row.is_some() {
            open.locked |= 1 << call;
        }
    } else if row.state == State::Failed && outcome == Outcome::Confirmed {
        // It ended as not executed, and was: its end gives way to the result, unless another one stands.
        let effect = world.effects[protocol.key(call)];
        if effect.generation < generation {
            open.effect = Some(Effect {
                generation,
                undone: false,
                ..effect
            });
            open.row = Some(Row::ended(State::Confirmed, generation));
            open.locked |= 1 << call;
        }
    }
    // Without a row it is history, which is committed too.
    true
}

/// Whether the row still names the attempt's claim.
fn decides(
    protocol: &Protocol,
    row: Row,
    instance: u8,
    attempt: &Attempt,
    outcome: Outcome,
) -> bool {
    (row.instance == instance && row.round == attempt.round)
        || (protocol.breaks(Broken::RecordWithoutTheClaim) && outcome != Outcome::Refused)
        || (protocol.breaks(Broken::LateRefusal) && outcome == Outcome::Refused)
}

/// `decide`, and `moved` of the statement.
fn moved(protocol: &Protocol, row: Row, attempt: &Attempt, outcome: Outcome) -> Row {
    let doubt = Row {
        state: State::InDoubt,
        doubtful: true,
        asked: false,
        resend: false,
        alive: Alive::Recorded,
        ..row
    };
    let resent = Row {
        resend: true,
        ..doubt
    };
    let parked = Row {
        state: State::Parked,
        ..doubt
    };
    let pending = Row {
        state: State::Pending,
        doubtful: false,
        ..doubt
    };
    match (outcome, protocol.leaf) {
        (Outcome::NotExecuted, _) if attempt.doubtful => resent,
        (Outcome::NotExecuted, _) => pending,
        // It says nothing about an earlier request that has not arrived yet.
        (Outcome::Refused, _)
            if attempt.doubtful && !protocol.breaks(Broken::RefusalEndsTheDoubt) =>
        {
            parked
        }
        (Outcome::Refused, _) => Row::ended(State::Failed, 0),
        (Outcome::Prior(generation), _) => Row::ended(State::Confirmed, generation),
        (Outcome::Doubt | Outcome::Confirmed, Leaf::Probed) => doubt,
        (Outcome::Doubt | Outcome::Confirmed, Leaf::Deduplicating | Leaf::Idempotent) => resent,
        (Outcome::Doubt | Outcome::Confirmed, Leaf::Parking) => parked,
    }
}

pub(crate) fn commit(protocol: &Protocol, world: &mut World, open: &Transaction) {
    let Work::Record { call, attempt, .. } = open.work else {
        return;
    };
    let call = usize::from(call);
    let confirmed = attempt.stage == Stage::Ended(Outcome::Confirmed);
    if let Some(row) = open.row {
        if matches!(row.state, State::InDoubt | State::Parked) {
            // The attempt's end is on record: from here on an absence can settle.
            world.clocks[call] = Clock::Over;
        }
        if matches!(attempt.stage, Stage::Ended(Outcome::Prior(_))) {
            world.news = Some(News::PriorUsed);
        } else if attempt.stale {
            world.news = Some(News::LateRecord);
        }
        world.wrong.confirmation_dropped |= confirmed && row.state != State::Confirmed;
    } else if confirmed {
        world.news = Some(News::ConfirmedAgain);
        let recorded = world.effects[protocol.key(call)].generation > 0;
        let state = world.rows[call].state;
        world.wrong.confirmation_dropped |=
            state.is_live() || (state == State::Failed && !recorded);
    } else {
        world.news = Some(News::Superseded);
    }
    match open.by {
        Some(process) => world.processes[usize::from(process)].attempts[call] = None,
        None => {
            // Its process records it once more.
            for sidecar in &mut world.processes {
                if let Some(waiting) = sidecar.attempts[call]
                    .as_mut()
                    .filter(|a| a.round == attempt.round)
                {
                    waiting.known = true;
                }
            }
        }
    }
}
