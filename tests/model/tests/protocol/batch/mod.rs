//! Batches: what they guarantee (G7, G8), and what breaks it.

mod broken;
mod sound;

use leafhopper_model::batch::{
    Model,
    protocol::{Broken, Protocol, Role},
    world::{Budget, CALLS},
};

use super::{find, lose, loses_nothing, search};

const NOTHING: Budget = Budget {
    deaths: 0,
    late: 0,
    refusals: 0,
    expiries: 0,
    cancels: 0,
    words: 0,
    forgets: 0,
    redos: 0,
};

/// An effect that can be undone, and a call whose insert commits at any time.
const TWO: [Role; CALLS] = [Role::Undoable, Role::Ready, Role::Unused];

/// The first is there from the start.
fn calls(calls: [Role; CALLS], budget: Budget) -> Protocol {
    Protocol::new(calls, 1, budget)
}

fn keeps_its_guarantees(protocol: Protocol) {
    search(Model(protocol));
}

fn breaks(protocol: Protocol, rule: Broken, each_of: &[&'static str]) {
    find(Model(protocol.without(rule)), rule, each_of);
}

fn loses(protocol: Protocol, rule: Broken) {
    lose(&protocol.without(rule), rule);
}
