//! Calls in doubt: `sql/queries/answer_doubts.sql`, `doubts.sql`, `settle_doubts.sql` and `record_probe.sql`, from
//! `engine/prober.rs` and `engine/ask.rs`.

use crate::{
    claim::is_due,
    database::{Transaction, WayOut, Work},
    protocol::{Broken, Leaf, Protocol},
    step::Step,
    world::{Clock, Effect, News, Probe, Row, State, World},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for call in 0..world.rows.len() {
        if world.rows[call].asked {
            out.push(Step::AsksAgain { call });
        }
        if !world.has_room(protocol) || is_under_way(world, call) {
            continue;
        }
        let standing = world.effects[protocol.key(call)].standing();
        if is_due(world, call) && standing.is_some() {
            out.push(Step::Answers { call });
        }
        if way_out(protocol, world, call).is_some() {
            out.push(Step::Looks { call });
        }
    }
    for (slot, probe) in world.probes.iter().enumerate() {
        let Some(probe) = probe else { continue };
        if probe.found.is_none() {
            out.push(Step::ProbeAnswers { slot });
        } else if world.has_room(protocol) {
            out.push(Step::ProbeRecords { slot });
        }
        out.push(Step::ProbeDies { slot });
    }
}

fn is_under_way(world: &World, call: usize) -> bool {
    let looks = |open: &Transaction| matches!(open.work, Work::Answer { .. } | Work::Settle { .. });
    world
        .open
        .iter()
        .flatten()
        .any(|open| looks(open) && open.call() == Some(call))
}

/// `resolve`, for a call that `doubts.sql` shows.
fn way_out(protocol: &Protocol, world: &World, call: usize) -> Option<WayOut> {
    let row = world.rows[call];
    let early =
        protocol.breaks(Broken::SettleFromTheClaim) && row.state == State::InDoubt && !row.asked;
    if !is_due(world, call) && !early {
        return None;
    }
    let in_time = !world.windows_over[protocol.key(call)];
    let asked = world.probes.iter().flatten().count();
    match protocol.leaf {
        Leaf::Probed => (asked < protocol.probes).then_some(WayOut::Ask),
        Leaf::Parking => Some(WayOut::Park),
        Leaf::Deduplicating | Leaf::Idempotent if in_time => {
            (!row.resend).then_some(WayOut::Resend)
        }
        Leaf::Deduplicating | Leaf::Idempotent => Some(WayOut::Park),
    }
}

pub(crate) fn begin_answer(world: &mut World, call: usize) {
    world.begin(
        Work::Answer {
            call: u8::try_from(call).unwrap_or_default(),
        },
        None,
    );
}

pub(crate) fn begin_look(protocol: &Protocol, world: &mut World, call: usize) {
    let Some(way_out) = way_out(protocol, world, call) else {
        return;
    };
    let row = world.rows[call];
    let settled =
        world.clocks[call] == Clock::Settled || protocol.breaks(Broken::SettleFromTheClaim);
    let call = u8::try_from(call).unwrap_or_default();
    let work = Work::Settle {
        call,
        tries: row.tries,
        alive: row.alive,
        settled,
        way_out,
    };
    world.begin(work, None);
}

pub(crate) fn begin_record(protocol: &Protocol, world: &mut World, slot: usize) {
    let Some(probe) = world.probes[slot].take() else {
        return;
    };
    let generation = world.effects[protocol.key(usize::from(probe.call))].next();
    world.begin(Work::RecordProbe { probe, generation }, None);
}

/// What the leaf says to a probe: whether the effect of this generation is there.
pub(crate) fn answer(protocol: &Protocol, world: &mut World, slot: usize) {
    let Some(probe) = world.probes[slot] else {
        return;
    };
    let key = protocol.key(usize::from(probe.call));
    let generation = usize::from(world.effects[key].next());
    let found = Some(world.ledger[key][generation - 1] > 0);
    world.probes[slot] = Some(Probe { found, ..probe });
}

pub(crate) fn write(protocol: &Protocol, world: &World, open: &mut Transaction) -> bool {
    let Some(call) = open.call().filter(|call| !world.is_locked(*call)) else {
        return false;
    };
    let row = world.rows[call];
    if row.state != State::InDoubt {
        return false;
    }
    let effect = world.effects[protocol.key(call)];
    open.row = match open.work {
        Work::Answer { .. } => effect
            .standing()
            .map(|standing| Row::ended(State::Confirmed, standing)),
        Work::Settle { tries, way_out, .. } if row.tries == tries && !row.asked => {
            Some(settled(row, way_out))
        }
        Work::RecordProbe { probe, generation } if row.tries == probe.tries && !row.resend => {
            open.effect = (probe.found == Some(true)
                && effect.standing().is_none()
                && effect.generation < generation)
                .then_some(Effect {
                    generation,
                    undone: false,
                    ..effect
                });
            Some(probed(row, effect, &probe, generation))
        }
        _ => None,
    };
    if open.row.is_some() {
        open.locked |= 1 << call;
    }
    open.row.is_some()
}

fn settled(row: Row, way_out: WayOut) -> Row {
    match way_out {
        WayOut::Ask => Row {
            asked: true,
            resend: false,
            ..row
        },
        WayOut::Resend => Row {
            resend: true,
            ..row
        },
        WayOut::Park => Row {
            state: State::Parked,
            resend: false,
            ..row
        },
    }
}

fn probed(row: Row, effect: Effect, probe: &Probe, generation: u8) -> Row {
    match (effect.standing(), probe.found) {
        (Some(standing), _) => Row::ended(State::Confirmed, standing),
        (None, Some(true)) => Row::ended(State::Confirmed, generation),
        // An attempt that was taken for dead has ended meanwhile: the absence was seen before that.
        (None, Some(false)) if probe.settled && probe.alive == row.alive => Row {
            state: State::Pending,
            doubtful: false,
            asked: false,
            ..row
        },
        (None, _) => Row {
            asked: false,
            ..row
        },
    }
}

pub(crate) fn commit(world: &mut World, open: &Transaction) {
    match (open.work, open.row) {
        (
            Work::Settle {
                call,
                tries,
                alive,
                settled,
                way_out: WayOut::Ask,
            },
            Some(_),
        ) => {
            let probe = Probe {
                call,
                tries,
                alive,
                settled,
                found: None,
            };
            if let Some(slot) = world.probes.iter_mut().find(|slot| slot.is_none()) {
                *slot = Some(probe);
            }
        }
        (
            Work::RecordProbe { .. },
            Some(Row {
                state: State::Pending,
                ..
            }),
        ) => {
            world.news = Some(News::AbsenceBelieved);
        }
        (
            Work::RecordProbe { probe, .. },
            Some(Row {
                state: State::Confirmed,
                ..
            }),
        ) if probe.found == Some(true) => {
            world.news = Some(News::Adopted);
        }
        (Work::Answer { .. }, _) => world.news = Some(News::PriorUsed),
        _ => {}
    }
}
