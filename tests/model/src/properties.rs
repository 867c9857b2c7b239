//! What must always be so (G2 to G6 of the guarantees), and what must happen somewhere, lest the rest be empty.

use stateright::Property;

use crate::{
    Model,
    database::has,
    protocol::Leaf,
    world::{CALLS, Clock, News, State, World},
};

/// G2
pub const CONFIRMED: &str = "G2: what is confirmed was executed, or somebody said so";
/// G2, the other way round
pub const FAILED: &str = "G2: what the leaf refused was not executed";
/// G3
pub const RECORD_FIRST: &str =
    "G3: nothing is sent for a key whose effect stood when it was claimed";
/// G4
pub const ONE_AT_A_TIME: &str = "G4: at most one attempt of a key is alive";
/// G4, in the database
pub const ONE_ROW: &str = "G4: at most one call of a key is dispatching, in doubt or parked";
/// G5
pub const NOT_BLINDLY: &str =
    "G5: nothing is sent while an earlier request can arrive or was executed";
/// G5, at the leaf
pub const ONE_EFFECT: &str = "G5: the leaf's ledger holds an effect once for each generation";
/// G6
pub const HEARD: &str = "G6: a confirmation that was received ends its call, if that is not final";

type Check = fn(&Model, &World) -> bool;

/// What must always be so.
pub const ALWAYS: [(&str, Check); 8] = [
    (CONFIRMED, |model, world| {
        (0..CALLS).all(|call| is_confirmed_rightly(model, world, call))
    }),
    (FAILED, |model, world| {
        model.0.one_key
            || (0..CALLS)
                .all(|call| world.rows[call].state != State::Failed || world.ledger[call][0] == 0)
    }),
    (RECORD_FIRST, |_, world| !world.wrong.sent_although_it_stood),
    (ONE_AT_A_TIME, |_, world| !world.wrong.sent_beside_another),
    (ONE_ROW, |model, world| {
        let excludes = |call: &usize| world.rows[*call].state.excludes();
        model
            .0
            .keys()
            .all(|key| model.0.calls_of(key).filter(excludes).count() <= 1)
    }),
    (NOT_BLINDLY, |_, world| !world.wrong.sent_blindly),
    (ONE_EFFECT, |_, world| {
        world.ledger.iter().flatten().all(|times| *times <= 1)
    }),
    (HEARD, |_, world| !world.wrong.confirmation_dropped),
];

fn is_confirmed_rightly(model: &Model, world: &World, call: usize) -> bool {
    let row = world.rows[call];
    if row.state != State::Confirmed {
        return true;
    }
    let key = model.0.key(call);
    let effect = world.effects[key];
    let recorded = row.generation > 0 && row.generation <= effect.generation;
    let executed = world.ledger[key][usize::from(row.generation.max(1)) - 1] > 0;
    recorded && (executed || has(effect.words, usize::from(row.generation)))
}

/// What happens somewhere in every world.
const SOMETIMES: [(&str, Check); 4] = [
    ("both calls are confirmed", |_, world| {
        world.rows.iter().all(|row| row.state == State::Confirmed)
    }),
    ("a call fails", |_, world| {
        world.rows.iter().any(|row| row.state == State::Failed)
    }),
    ("a call is in doubt", |_, world| {
        world.rows.iter().any(|row| row.state == State::InDoubt)
    }),
    (
        "an attempt is recorded that no longer decides",
        |_, world| world.news == Some(News::Superseded),
    ),
];

/// What happens where one key is shared.
const WITH_ONE_KEY: [(&str, Check); 3] = [
    ("a call is held for its key", |_, world| {
        world.rows.iter().any(|row| row.held)
    }),
    ("two claims meet in the index", |_, world| {
        world.news == Some(News::MetInTheIndex)
    }),
    ("a call ends from another's result", |_, world| {
        world.news == Some(News::PriorUsed)
    }),
];

/// What happens where an instance can crash or fall silent.
const WITH_TAKEOVERS: [(&str, Check); 1] = [("a claim is taken over", |_, world| {
    world.news == Some(News::TakenOver)
})];

/// What happens where an instance can fall silent and come back.
const WITH_LAPSES: [(&str, Check); 2] = [
    (
        "an attempt that was taken over still decides",
        |_, world| world.news == Some(News::LateRecord),
    ),
    ("a request is written after a freeze", |_, world| {
        world.news == Some(News::LateSend)
    }),
];

/// What happens where replies are lost.
const WITH_LOST_REPLIES: [(&str, Check); 1] = [("a claim is given back", |_, world| {
    world.news == Some(News::GivenBack)
})];

const WITH_WORDS: [(&str, Check); 1] = [("an effect stands on somebody's word", |_, world| {
    world.effects.iter().any(|effect| effect.words != 0)
})];

const WITH_FORGETTING: [(&str, Check); 1] = [("an effect is made again", |_, world| {
    world.ledger.iter().any(|made| made[0] > 0 && made[1] > 0)
})];

fn with_leaf(leaf: Leaf) -> &'static [(&'static str, Check)] {
    match leaf {
        Leaf::Probed => &[
            ("a probe's finding is adopted", |_, world| {
                world.news == Some(News::Adopted)
            }),
            ("a probe's absence is believed", |_, world| {
                world.news == Some(News::AbsenceBelieved)
            }),
        ],
        Leaf::Deduplicating => &[
            ("the leaf answers from its memory", |_, world| {
                world.news == Some(News::Deduplicated)
            }),
            ("the leaf's memory ends in a doubt", |_, world| {
                (0..CALLS)
                    .any(|call| world.windows_over[call] && world.rows[call].state == State::Parked)
            }),
        ],
        Leaf::Idempotent => &[("an effect is sent again", |_, world| {
            world.news == Some(News::Repeated)
        })],
        Leaf::Parking => &[("a parked call has settled", |_, world| {
            (0..CALLS).any(|call| {
                world.rows[call].state == State::Parked && world.clocks[call] == Clock::Settled
            })
        })],
    }
}

/// The properties of a model; what must happen only where no rule is broken and where it can.
pub(crate) fn of(model: &Model) -> Vec<Property<Model>> {
    let always = ALWAYS
        .iter()
        .map(|(name, check)| Property::always(name, *check));
    let budget = model.0.budget;
    let sometimes: [(bool, &[(&'static str, Check)]); 8] = [
        (budget.refusals > 0, &SOMETIMES),
        (model.0.one_key, &WITH_ONE_KEY),
        (budget.crashes + budget.lapses > 0, &WITH_TAKEOVERS),
        (budget.lapses > 0, &WITH_LAPSES),
        (budget.lost_replies > 0, &WITH_LOST_REPLIES),
        (budget.confirms > 0, &WITH_WORDS),
        (budget.forgets > 0, &WITH_FORGETTING),
        (budget.lost_answers > 0, with_leaf(model.0.leaf)),
    ];
    let sometimes = sometimes
        .into_iter()
        .filter(|(can, _)| *can && model.0.broken.is_none());
    let sometimes = sometimes
        .flat_map(|(_, group)| group)
        .map(|(name, check)| Property::sometimes(name, *check));
    always.chain(sometimes).collect()
}
