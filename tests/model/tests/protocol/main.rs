//! The model, searched to its ends: the protocol keeps its guarantees, and each rule that is left out breaks one.
//!
//! `cargo test -p leafhopper-model -- --nocapture` shows the numbers of states and the counterexamples.

mod batch;
mod broken;
mod sound;

use std::{fmt::Debug, hash::Hash};

use leafhopper_model::{
    Model,
    home::{self, Ground, Walk},
    protocol::{Broken, Leaf, Protocol},
    world::Budget,
};
use stateright::{Checker as _, HasDiscoveries};

const NOTHING: Budget = Budget {
    crashes: 0,
    lapses: 0,
    lost_replies: 0,
    lost_answers: 0,
    refusals: 0,
    confirms: 0,
    forgets: 0,
};

/// What the checker asks of a model.
trait Searched:
    stateright::Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync,
        Action: Clone + Debug + PartialEq,
    > + Send
    + Sync
    + 'static
{
}

impl Searched for Model {}
impl Searched for leafhopper_model::batch::Model {}

/// Searches everything. What must always be so is so; what must happen somewhere happens.
fn keeps_its_guarantees(protocol: Protocol) {
    search(Model(protocol));
}

fn search(model: impl Searched + Debug) {
    let world = format!("{model:?}");
    let checker = model.checker().spawn_bfs().join();
    report(&format!(
        "{world}: {} states, {} steps deep",
        checker.unique_state_count(),
        checker.max_depth()
    ));
    // Nothing bounds the search, so it ends only where all is seen, or all that is looked for was found; an
    // `always` is not found.
    assert!(checker.is_done());
    checker.assert_properties();
}

/// From everywhere, each call can still end or be parked, and each batch can end.
fn loses_nothing<G: Debug + Ground>(protocol: &G) {
    let Walk { states, lost } = home::walk(protocol);
    report(&format!(
        "{protocol:?}: {states} states, all of them on a way home: {}",
        lost.is_none()
    ));
    if let Some((steps, world)) = lost {
        panic!("no way home after {steps:#?}\nfrom {world:#?}");
    }
}

/// Without the rule each of these properties is broken somewhere.
fn breaks(protocol: Protocol, rule: Broken, each_of: &[&'static str]) {
    find(Model(protocol.without(rule)), rule, each_of);
}

fn find(model: impl Searched, rule: impl Debug, each_of: &[&'static str]) {
    let mut found = model
        .checker()
        .finish_when(HasDiscoveries::AllOf(each_of.iter().copied().collect()))
        .spawn_bfs()
        .join()
        .discoveries();
    for name in each_of {
        let Some(path) = found.remove(name) else {
            panic!("without the rule ({rule:?}) {name:?} holds");
        };
        let steps = path.into_actions();
        report(&format!(
            "{rule:?} breaks {name:?} in {} steps: {steps:#?}",
            steps.len()
        ));
    }
}

/// The shortest way to a state from which a call can't end; that there is one is what is asked for.
fn loses(protocol: Protocol, rule: Broken) {
    lose(&protocol.without(rule), rule);
}

fn lose(ground: &impl Ground, rule: impl Debug) {
    let Walk { lost, .. } = home::walk(ground);
    let Some((steps, _)) = lost else {
        panic!("without the rule ({rule:?}) there is a way home from everywhere");
    };
    report(&format!(
        "{rule:?} loses a call in {} steps: {steps:#?}",
        steps.len()
    ));
}

fn one_key(leaf: Leaf, budget: Budget) -> Protocol {
    Protocol::new(leaf, true, budget)
}

fn two_keys(leaf: Leaf, budget: Budget) -> Protocol {
    Protocol {
        slots: 2,
        ..Protocol::new(leaf, false, budget)
    }
}

#[expect(
    clippy::print_stdout,
    reason = "shown by --nocapture, and where a test fails"
)]
fn report(line: &str) {
    println!("{line}");
}
