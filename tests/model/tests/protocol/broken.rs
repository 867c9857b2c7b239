//! Each rule that is left out breaks a guarantee. So the properties can fail, and the rules are needed.

use leafhopper_model::properties::{
    CONFIRMED, FAILED, HEARD, NOT_BLINDLY, ONE_AT_A_TIME, ONE_EFFECT, ONE_ROW, RECORD_FIRST,
};

use super::{Broken, Budget, Leaf, NOTHING, breaks, loses, one_key, two_keys};

#[test]
fn a_lease_that_runs_out_is_a_doubt() {
    let crash = Budget {
        crashes: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Probed, crash),
        Broken::ResendOnExpiry,
        &[NOT_BLINDLY],
    );
    // A leaf that dedups forgives it until it has forgotten the key.
    let twice = Budget {
        crashes: 1,
        lost_answers: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Deduplicating, twice),
        Broken::ResendOnExpiry,
        &[ONE_EFFECT],
    );
}

#[test]
fn settle_counts_from_when_the_attempt_can_last_have_been_alive() {
    let frozen = Budget {
        lapses: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Probed, frozen),
        Broken::SettleFromTheClaim,
        &[NOT_BLINDLY],
    );
}

#[test]
fn a_prior_result_is_looked_for_after_the_rows_are_locked() {
    let word = Budget {
        confirms: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Probed, word),
        Broken::PriorInTheClaimsSnapshot,
        &[RECORD_FIRST],
    );
}

#[test]
fn a_unique_index_excludes_others_of_a_key() {
    breaks(
        one_key(Leaf::Probed, NOTHING),
        Broken::NoUniqueIndex,
        &[ONE_AT_A_TIME, ONE_ROW],
    );
}

#[test]
fn a_record_names_its_claim() {
    let late = Budget {
        lapses: 1,
        lost_answers: 1,
        refusals: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Deduplicating, late),
        Broken::RecordWithoutTheClaim,
        &[ONE_AT_A_TIME],
    );
}

#[test]
fn a_late_refusal_is_history_once_a_newer_attempt_has_begun() {
    let late = Budget {
        lapses: 1,
        lost_answers: 1,
        refusals: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Deduplicating, late),
        Broken::LateRefusal,
        &[ONE_AT_A_TIME],
    );
}

#[test]
fn a_late_confirmation_ends_its_call_whoever_has_claimed_it_since() {
    let late = Budget {
        lapses: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Deduplicating, late),
        Broken::ConfirmationOfTheClaimOnly,
        &[HEARD],
    );
}

#[test]
fn a_renewed_lease_does_not_cover_what_was_claimed_before_its_gap() {
    let gap = Budget {
        lapses: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Probed, gap),
        Broken::LeaseWithoutTerms,
        &[NOT_BLINDLY],
    );
}

#[test]
fn a_takeover_takes_the_claim_that_it_saw() {
    let late = Budget {
        lapses: 1,
        refusals: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Probed, late),
        Broken::TakeoverOfAnyClaim,
        &[ONE_AT_A_TIME, NOT_BLINDLY],
    );
}

#[test]
fn an_effect_is_not_forgotten_while_an_attempt_of_its_key_can_be_alive() {
    let late = Budget {
        lapses: 1,
        lost_answers: 1,
        forgets: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Deduplicating, late),
        Broken::ForgetWhileAlive,
        &[ONE_AT_A_TIME],
    );
    let said = Budget {
        confirms: 1,
        forgets: 1,
        ..NOTHING
    };
    breaks(
        one_key(Leaf::Probed, said),
        Broken::ForgetWhileAlive,
        &[CONFIRMED],
    );
}

#[test]
fn a_refusal_does_not_answer_a_request_that_can_still_arrive() {
    let late = Budget {
        lost_answers: 1,
        refusals: 1,
        ..NOTHING
    };
    breaks(
        two_keys(Leaf::Deduplicating, late),
        Broken::RefusalEndsTheDoubt,
        &[FAILED],
    );
}

#[test]
fn a_call_waits_for_those_under_way_only() {
    loses(one_key(Leaf::Probed, NOTHING), Broken::WaitForAnyOther);
}

#[test]
fn what_is_held_is_swept() {
    loses(one_key(Leaf::Probed, NOTHING), Broken::NoSweepOfHeld);
}

#[test]
fn what_a_lost_reply_claimed_is_given_back() {
    loses(
        one_key(
            Leaf::Probed,
            Budget {
                lost_replies: 1,
                ..NOTHING
            },
        ),
        Broken::NoGiveBack,
    );
}
