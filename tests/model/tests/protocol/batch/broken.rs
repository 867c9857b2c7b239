//! Each rule of batches that is left out breaks a guarantee.

use leafhopper_model::batch::properties::{
    CANCELLED, CIRCLE, ENDS, LAST, ONCE, OUTCOME, OWN, SUCCESS, UNDONE,
};

use super::{Broken, Budget, NOTHING, Protocol, Role, TWO, breaks, calls, loses};

const CANCEL: Budget = Budget {
    cancels: 1,
    ..NOTHING
};
const REFUSAL: Budget = Budget {
    refusals: 1,
    ..NOTHING
};
const EXPIRY: Budget = Budget {
    expiries: 1,
    ..NOTHING
};
const CRASH: Budget = Budget {
    cancels: 1,
    deaths: 1,
    ..NOTHING
};
const LATE: Budget = Budget { late: 1, ..CRASH };

fn two(budget: Budget) -> Protocol {
    calls(TWO, budget)
}

/// A doubt waits for somebody's word.
fn parking(budget: Budget) -> Protocol {
    Protocol {
        parks: true,
        ..two(budget)
    }
}

/// A doubt is sent again while the batch is open.
fn resending(budget: Budget) -> Protocol {
    Protocol {
        resends: true,
        ..parking(budget)
    }
}

#[test]
fn what_cancels_does_not_settle() {
    breaks(two(CANCEL), Broken::SettledByTheCancel, &[LAST]);
}

#[test]
fn success_is_announced() {
    breaks(two(REFUSAL), Broken::SuccessInOneStep, &[SUCCESS]);
}

#[test]
fn a_claim_does_not_wait_for_the_batch() {
    breaks(two(CANCEL), Broken::ClaimWaitsForTheBatch, &[CIRCLE]);
}

#[test]
fn live_calls_are_not_counted() {
    breaks(two(LATE), Broken::CountedLiveCalls, &[LAST]);
}

#[test]
fn a_look_has_a_snapshot_younger_than_its_lock() {
    breaks(two(CANCEL), Broken::LookInOneStatement, &[LAST, SUCCESS]);
    // Open, closing, open, closing: the state is the same again, and the calls are others.
    breaks(
        calls([Role::Ready; 3], NOTHING),
        Broken::LookGuardedByItsState,
        &[SUCCESS],
    );
}

#[test]
fn a_look_deletes_what_it_has_read_and_looked_at() {
    breaks(two(NOTHING), Broken::UnreadMarksDeleted, &[ENDS]);
    breaks(two(CANCEL), Broken::MarksDeletedWhereSkipped, &[ENDS]);
}

#[test]
fn a_seal_leaves_a_mark() {
    let unsealed = Protocol {
        unsealed: true,
        ..two(NOTHING)
    };
    breaks(unsealed, Broken::SealedWithoutMark, &[ENDS]);
}

#[test]
fn a_claim_sees_its_batch_no_earlier_than_its_call() {
    breaks(two(CANCEL), Broken::BatchLookedAtFirst, &[CANCELLED, LAST]);
}

#[test]
fn doubts_hold_the_batch() {
    breaks(two(CRASH), Broken::DoubtsDoNotHold, &[LAST, SUCCESS]);
    breaks(parking(CRASH), Broken::ParkedDoNotHold, &[LAST, SUCCESS]);
}

#[test]
fn a_late_confirmation_puts_the_batch_back() {
    breaks(two(LATE), Broken::TeardownEndsForGood, &[UNDONE, ENDS]);
}

#[test]
fn an_effect_is_undone_once() {
    breaks(two(CANCEL), Broken::UndoneTwice, &[ONCE]);
}

#[test]
fn an_announcement_stays_until_the_row_of_the_batch_says_it() {
    let late = Budget {
        refusals: 1,
        cancels: 0,
        ..LATE
    };
    breaks(two(late), Broken::AnnouncementGivesWay, &[CANCELLED]);
    breaks(two(REFUSAL), Broken::AnnouncementMovesInTwo, &[CANCELLED]);
}

#[test]
fn an_announcement_that_comes_late_is_taken_back() {
    let failure = Budget {
        refusals: 1,
        ..CANCEL
    };
    breaks(two(failure), Broken::LateAnnouncementStays, &[ENDS]);
}

#[test]
fn a_batch_that_is_closing_is_not_over() {
    breaks(two(CRASH), Broken::ClosingCountsAsOver, &[SUCCESS]);
}

#[test]
fn what_was_never_claimed_does_not_end_while_its_batch_is_closing() {
    breaks(two(EXPIRY), Broken::EndedWhileClosing, &[OUTCOME]);
}

#[test]
fn a_look_does_not_wait_for_a_word() {
    let word = Budget {
        words: 1,
        ..REFUSAL
    };
    breaks(two(word), Broken::LookWaitsForEnds, &[CIRCLE]);
}

#[test]
fn calls_are_swept_whenever_they_come() {
    loses(two(CANCEL), Broken::SweptWhileCancelling);
}

#[test]
fn a_refusal_does_not_end_a_doubt() {
    let refused = Budget {
        refusals: 1,
        deaths: 1,
        ..NOTHING
    };
    breaks(resending(refused), Broken::RefusalEndsTheDoubt, &[UNDONE]);
}

#[test]
fn a_compensation_undoes_what_still_stands() {
    let again = Budget {
        forgets: 1,
        redos: 1,
        ..CANCEL
    };
    breaks(two(again), Broken::UndoneUnasked, &[OWN]);
}

#[test]
fn an_effect_is_made_again_after_the_last_request_that_can_undo_it() {
    let again = Budget { redos: 1, ..CRASH };
    breaks(resending(again), Broken::RedoneWhileAlive, &[OWN]);
}

#[test]
fn a_compensation_comes_after_the_last_request_that_can_arrive() {
    // A first request is confirmed late, or is late itself, while a second one is under way or was confirmed.
    breaks(resending(CRASH), Broken::UndoneWhileAlive, &[UNDONE, LAST]);
    // Somebody says that a call in doubt was executed, and its request arrives after that.
    let word = Budget { words: 1, ..CRASH };
    breaks(two(word), Broken::UndoneWhileAlive, &[UNDONE, LAST]);
}
