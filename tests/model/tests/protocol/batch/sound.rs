//! The protocol of batches as it is meant: each world is searched completely.

use leafhopper_model::batch::world::ALWAYS;

use super::{Budget, NOTHING, Protocol, Role, TWO, calls, keeps_its_guarantees, loses_nothing};

/// Two effects that can be undone, and a call whose insert commits at any time.
const TWO_EFFECTS: [Role; 3] = [Role::Undoable, Role::Undoable, Role::Ready];
/// One effect that can be undone, and two calls whose inserts commit at any time.
const THREE: [Role; 3] = [Role::Undoable, Role::Ready, Role::Ready];

const CANCEL: Budget = Budget {
    cancels: 1,
    ..NOTHING
};
const REFUSAL: Budget = Budget {
    refusals: 1,
    ..NOTHING
};

#[test]
fn three_calls_and_a_crash() {
    for budget in [CANCEL, REFUSAL] {
        keeps_its_guarantees(calls(
            THREE,
            Budget {
                deaths: 1,
                ..budget
            },
        ));
    }
}

#[test]
fn three_calls_of_a_batch_that_fails_and_is_cancelled() {
    keeps_its_guarantees(calls(
        THREE,
        Budget {
            cancels: 1,
            ..REFUSAL
        },
    ));
    keeps_its_guarantees(calls(
        THREE,
        Budget {
            expiries: 1,
            ..REFUSAL
        },
    ));
}

#[test]
fn any_number_of_crashes() {
    for budget in [CANCEL, REFUSAL] {
        keeps_its_guarantees(calls(
            TWO,
            Budget {
                deaths: ALWAYS,
                expiries: 1,
                ..budget
            },
        ));
    }
}

#[test]
fn a_batch_that_the_app_seals() {
    for budget in [CANCEL, REFUSAL] {
        let crash = Budget {
            deaths: 1,
            ..budget
        };
        let protocol = Protocol {
            unsealed: true,
            ..calls(TWO, crash)
        };
        keeps_its_guarantees(protocol);
        loses_nothing(&protocol);
    }
}

#[test]
fn two_effects_to_undo() {
    let protocol = calls(
        TWO_EFFECTS,
        Budget {
            deaths: 1,
            ..REFUSAL
        },
    );
    keeps_its_guarantees(Protocol {
        early: 2,
        ..protocol
    });
}

#[test]
fn a_request_that_arrives_when_nobody_expects_it() {
    for budget in [CANCEL, REFUSAL] {
        keeps_its_guarantees(calls(
            TWO,
            Budget {
                deaths: 1,
                late: 1,
                ..budget
            },
        ));
    }
}

#[test]
fn a_word_that_a_call_is_confirmed() {
    for budget in [CANCEL, REFUSAL] {
        keeps_its_guarantees(calls(
            TWO,
            Budget {
                deaths: 1,
                words: 1,
                ..budget
            },
        ));
    }
}

#[test]
fn an_effect_that_another_batch_makes_again() {
    for resends in [false, true] {
        let again = Budget {
            deaths: 1,
            forgets: 1,
            redos: 1,
            ..CANCEL
        };
        keeps_its_guarantees(Protocol {
            parks: resends,
            resends,
            ..calls(TWO, again)
        });
    }
}

#[test]
fn doubts_that_wait_for_a_word_and_doubts_that_are_sent_again() {
    for resends in [false, true] {
        for budget in [CANCEL, REFUSAL] {
            let budget = Budget {
                deaths: 1,
                ..budget
            };
            keeps_its_guarantees(Protocol {
                parks: true,
                resends,
                ..calls(TWO, budget)
            });
        }
    }
}

#[test]
fn follow_ups_run_last() {
    for follow_up in [Role::WhenSucceeded, Role::WhenFailed, Role::WhenSettled] {
        for budget in [CANCEL, REFUSAL] {
            let budget = Budget {
                deaths: 1,
                expiries: 1,
                ..budget
            };
            keeps_its_guarantees(calls([Role::Undoable, Role::Ready, follow_up], budget));
        }
    }
    // One phase after the other.
    for first in [Role::WhenSucceeded, Role::WhenFailed] {
        keeps_its_guarantees(calls(
            [Role::Undoable, first, Role::WhenSettled],
            Budget {
                deaths: ALWAYS,
                ..CANCEL
            },
        ));
    }
}

#[test]
fn four_transactions_at_once() {
    for budget in [CANCEL, REFUSAL] {
        keeps_its_guarantees(Protocol {
            open: 4,
            ..calls(THREE, budget)
        });
    }
}

#[test]
fn every_batch_comes_to_its_end() {
    for budget in [CANCEL, REFUSAL] {
        loses_nothing(&calls(THREE, budget));
        for more in [
            Budget { late: 1, ..budget },
            Budget { words: 1, ..budget },
            Budget {
                expiries: 1,
                ..budget
            },
        ] {
            loses_nothing(&calls(TWO, Budget { deaths: 1, ..more }));
        }
    }
    for resends in [false, true] {
        let crash = Budget {
            deaths: 1,
            ..CANCEL
        };
        loses_nothing(&Protocol {
            parks: true,
            resends,
            ..calls(TWO, crash)
        });
    }
    for follow_up in [Role::WhenSucceeded, Role::WhenFailed, Role::WhenSettled] {
        loses_nothing(&calls(
            [Role::Undoable, Role::Ready, follow_up],
            Budget {
                deaths: 1,
                ..REFUSAL
            },
        ));
    }
}
