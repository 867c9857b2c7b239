//! The leaf and the way to it. An answer reaches its sender in the step that makes it: whatever delays it is a delay of
//! that step, or a loss.

use crate::{
    protocol::{Leaf, Protocol},
    step::Step,
    world::{Attempt, News, Outcome, Stage, World},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for (call, wire) in world.wire.iter().enumerate() {
        for (round, generation) in wire.iter().enumerate() {
            if *generation == 0 {
                continue;
            }
            out.push(Step::Executes { call, round });
            let awaited = is_awaited(world, call, round);
            if !awaited {
                out.push(Step::Vanishes { call, round });
                continue;
            }
            if world.budget.lost_answers > 0 {
                out.push(Step::ExecutesAndDrops { call, round });
                out.push(Step::Vanishes { call, round });
            }
            // What it remembers it answers from its memory.
            let remembers = protocol.leaf == Leaf::Deduplicating
                && !world.windows_over[protocol.key(call)]
                && world.ledger[protocol.key(call)][usize::from(*generation) - 1] > 0;
            if world.budget.refusals > 0 && !remembers {
                out.push(Step::Refuses { call, round });
                out.push(Step::DoesNothing { call, round });
            }
        }
    }
}

fn waits(attempt: &Attempt, round: usize) -> bool {
    usize::from(attempt.round) == round && attempt.stage == Stage::Waiting
}

fn is_awaited(world: &World, call: usize, round: usize) -> bool {
    world
        .attempts_of(call)
        .any(|(_, attempt)| waits(attempt, round))
}

/// The request arrives and is executed, as the leaf's kind is.
pub(crate) fn execute(protocol: &Protocol, world: &mut World, call: usize, round: usize) {
    let generation = usize::from(world.wire[call][round]);
    let key = protocol.key(call);
    let made = &mut world.ledger[key][generation - 1];
    if *made == 0 {
        *made = 1;
    } else {
        match protocol.leaf {
            Leaf::Deduplicating if !world.windows_over[key] => {
                world.news = Some(News::Deduplicated)
            }
            Leaf::Idempotent => world.news = Some(News::Repeated),
            Leaf::Deduplicating | Leaf::Probed | Leaf::Parking => *made = 2,
        }
    }
    world.wire[call][round] = 0;
}

pub(crate) fn answer(world: &mut World, call: usize, round: usize, outcome: Outcome) {
    world.wire[call][round] = 0;
    for sidecar in &mut world.processes {
        if let Some(attempt) = sidecar.attempts[call]
            .as_mut()
            .filter(|attempt| waits(attempt, round))
        {
            attempt.stage = Stage::Ended(outcome);
        }
    }
}

/// The request is lost on its way.
pub(crate) fn vanish(world: &mut World, call: usize, round: usize) {
    if is_awaited(world, call, round) {
        world.budget.lost_answers -= 1;
    }
    world.wire[call][round] = 0;
}
