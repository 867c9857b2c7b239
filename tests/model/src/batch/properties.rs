//! What must always be so of a batch (G7, G8), and what must happen somewhere, lest the rest be empty.

use stateright::Property;

use super::{
    Model,
    protocol::Role,
    rows::{Attempt, Batch, State},
    world::{News, PLACES, World, is_undo},
};

/// G7
pub const CANCELLED: &str =
    "G7: no claim that begins after the commit that cancels the batch takes a call of it";
/// G8
pub const LAST: &str =
    "G8: no compensation and no follow-up is under way beside a call that the batch waits for";
/// G8, at the leaf
pub const UNDONE: &str =
    "G8: no effect stands of a batch whose teardown is over, but for one just heard of";
/// G8, for one effect
pub const ONCE: &str = "G8: an effect gets one compensation";
/// G8, for what others do
pub const OWN: &str = "G8: nothing is undone that is not the batch's own";
/// G8, the other way round
pub const SUCCESS: &str = "G8: what has succeeded is confirmed and stays so";
/// G8, for the outcome
pub const OUTCOME: &str = "G8: a batch has one outcome, and follow-ups run in their own";
/// G6, for the batch
pub const ENDS: &str = "G6: a batch to which nothing more happens has ended";
/// Of locks
pub const CIRCLE: &str = "nobody waits in a circle";

type Check = fn(&Model, &World) -> bool;

/// What must always be so.
pub const ALWAYS: [(&str, Check); 9] = [
    (CANCELLED, |_, world| !world.wrong.claimed_after_the_cancel),
    (LAST, |model, world| is_last(model, world)),
    (UNDONE, |model, world| is_undone(model, world)),
    (ONCE, |_, world| {
        world.calls.iter().all(|call| call.undos <= 1)
    }),
    (OWN, |_, world| !world.wrong.undid_anothers),
    (SUCCESS, |model, world| has_rightly_succeeded(model, world)),
    (OUTCOME, |model, world| has_one_outcome(model, world)),
    (ENDS, |model, world| {
        !world.rests() || world.is_at_its_end(&model.0) || waits_for_a_person(model, world)
    }),
    (CIRCLE, |model, world| !world.waits_in_a_circle(&model.0)),
];

/// A teardown and a success come after the calls, and a compensation after its own call's last request.
fn is_last(model: &Model, world: &World) -> bool {
    let is_under_way = |place: usize| world.calls[place].state.is_under_way();
    let waited_for = || model.0.waited_for().any(is_under_way);
    (0..PLACES)
        .filter(|place| is_under_way(*place))
        .all(|place| match model.0.role(place) {
            Role::Undo(of) => !waited_for() && !world.calls[of].may_arrive(),
            role => role.is_waited_for() || !waited_for(),
        })
}

fn is_undone(model: &Model, world: &World) -> bool {
    let is_right = |call: usize| {
        let row = world.calls[call];
        let is_known = row.heard || (row.state == State::Confirmed && !world.rests());
        !row.stands || is_known
    };
    world.batch != Batch::Cancelled || model.0.undoable().all(is_right)
}

fn has_rightly_succeeded(model: &Model, world: &World) -> bool {
    let is_right = |call: usize| {
        let row = world.calls[call];
        // What is inserted too late is cancelled, and was never claimed.
        // The app may forget what it likes.
        let has_result = matches!(row.state, State::Confirmed | State::Undone);
        has_result || (!row.claimed && !row.state.is_under_way())
    };
    !world.wrong.succeeded_over_a_failure
        && (world.batch != Batch::Succeeded
            || (model.0.waited_for().all(is_right)
                && world.calls.iter().all(|call| call.undos == 0)))
}

fn has_one_outcome(model: &Model, world: &World) -> bool {
    let succeeded = world.batch == Batch::Succeeded;
    let torn_down = matches!(world.batch, Batch::Compensating | Batch::Cancelled);
    let is_right = |place: usize| {
        let state = world.calls[place].state;
        let runs = state.is_under_way() || matches!(state, State::Confirmed | State::Failed);
        let ended = state == State::Cancelled;
        match model.0.role(place) {
            Role::WhenSucceeded => {
                (!runs || succeeded) && (!ended || (world.announced && !succeeded))
            }
            Role::WhenFailed => (!runs || torn_down) && (!ended || succeeded),
            Role::WhenSettled => (!runs || torn_down || succeeded) && !ended,
            Role::Undo(_) => state == State::Unseen || torn_down,
            _ => true,
        }
    };
    let has_two = world.wrong.left_its_end || (succeeded && world.announced);
    !has_two && (0..PLACES).all(is_right)
}

/// A compensation has failed for good.
fn waits_for_a_person(model: &Model, world: &World) -> bool {
    world.batch == Batch::Compensating
        && (0..PLACES)
            .any(|place| is_undo(&model.0, place) && world.calls[place].state == State::Failed)
}

/// What happens in every world.
const SOMETIMES: [(&str, Check); 1] = [("a batch succeeds", |_, world| {
    world.batch == Batch::Succeeded
})];

const WITHOUT_ROW: [(&str, Check); 1] =
    [("a look's insert of the row meets another", |_, world| {
        world.news == Some(News::RowWasThere)
    })];

const WITH_LATE_CALLS: [(&str, Check); 2] = [
    ("a batch that was closing is open again", |_, world| {
        world.news == Some(News::Reopened)
    }),
    ("a call comes too late for its batch", |_, world| {
        world.batch == Batch::Succeeded
            && world
                .calls
                .iter()
                .any(|call| call.state == State::Cancelled)
    }),
];

const WITH_TEARDOWN: [(&str, Check); 2] = [
    ("a batch is cancelled", |_, world| {
        world.batch == Batch::Cancelled
    }),
    ("a teardown waits for a call in flight", |model, world| {
        world.batch == Batch::Cancelling
            && model
                .0
                .waited_for()
                .any(|call| world.calls[call].attempt == Some(Attempt::Sent))
    }),
];

const WITH_COMPENSATION: [(&str, Check); 1] = [("an effect is undone", |_, world| {
    world.calls.iter().any(|call| call.state == State::Undone)
})];

const WITH_DEATHS: [(&str, Check); 2] = [
    ("a doubt of a cancelled batch ends it", |_, world| {
        world.news == Some(News::DoubtCancelled)
    }),
    ("a compensation in doubt was executed", |_, world| {
        world.news == Some(News::FoundUndone)
    }),
];

const WITH_LATE_ANSWERS: [(&str, Check); 2] = [
    ("a late answer becomes a result", |_, world| {
        world.news == Some(News::HeardLate)
    }),
    ("a teardown begins again", |_, world| {
        world.news == Some(News::TornDownAgain)
    }),
];

const WITH_FAILURES: [(&str, Check); 1] =
    [("a failure of a cancelled batch is announced", |_, world| {
        world.news == Some(News::AnnouncedLate)
    })];

const WITH_FORGETTING: [(&str, Check); 1] = [("a compensation has nothing to undo", |_, world| {
    world.news == Some(News::NothingToUndo)
})];

const WITH_RESENDS: [(&str, Check); 1] = [(
    "a call is confirmed while it is under way again",
    |_, world| {
        world
            .calls
            .iter()
            .any(|call| call.state == State::Confirmed && call.attempt == Some(Attempt::Sent))
    },
)];

/// The properties of a model; what must happen only where no rule is broken and where it can.
pub(crate) fn of(model: &Model) -> Vec<Property<Model>> {
    let always = ALWAYS
        .iter()
        .map(|(name, check)| Property::always(name, *check));
    let protocol = &model.0;
    let budget = protocol.budget;
    let fails = budget.refusals + budget.expiries > 0;
    let ends = fails || budget.cancels > 0;
    let undoes = ends && protocol.undoable().next().is_some();
    let sometimes: [(bool, &[(&'static str, Check)]); 10] = [
        (true, &SOMETIMES),
        (!protocol.unsealed, &WITHOUT_ROW),
        (
            protocol.waited_for().any(|call| call >= protocol.early),
            &WITH_LATE_CALLS,
        ),
        (ends, &WITH_TEARDOWN),
        (undoes, &WITH_COMPENSATION),
        (
            undoes && budget.deaths > 0 && !protocol.resends,
            &WITH_DEATHS,
        ),
        (undoes && budget.late > 0, &WITH_LATE_ANSWERS),
        (fails && budget.cancels > 0, &WITH_FAILURES),
        (undoes && budget.forgets > 0, &WITH_FORGETTING),
        (protocol.resends && budget.deaths > 0, &WITH_RESENDS),
    ];
    let sometimes = sometimes
        .into_iter()
        .filter(|(can, _)| *can && protocol.broken.is_none());
    let sometimes = sometimes
        .flat_map(|(_, group)| group)
        .map(|(name, check)| Property::sometimes(name, *check));
    always.chain(sometimes).collect()
}
