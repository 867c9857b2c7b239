//! The protocol as it is meant: each world is searched completely.

use super::{
    Budget, Leaf, NOTHING, Protocol, keeps_its_guarantees, loses_nothing, one_key, two_keys,
};

/// One key, for each kind of leaf the same faults.
fn with_one_key(leaf: Leaf) {
    // The lease has a gap or the process freezes, and an answer is lost or late.
    keeps_its_guarantees(one_key(
        leaf,
        Budget {
            lapses: 1,
            lost_answers: 1,
            ..NOTHING
        },
    ));
    // The process dies, and an answer is lost, or the leaf says no.
    keeps_its_guarantees(one_key(
        leaf,
        Budget {
            crashes: 1,
            lost_answers: 1,
            ..NOTHING
        },
    ));
    keeps_its_guarantees(one_key(
        leaf,
        Budget {
            crashes: 1,
            refusals: 1,
            ..NOTHING
        },
    ));
    // The lease has a gap, and the leaf says no.
    keeps_its_guarantees(one_key(
        leaf,
        Budget {
            lapses: 1,
            refusals: 1,
            ..NOTHING
        },
    ));
    // A commit's reply is lost; the app confirms, and forgets.
    let said = Budget {
        lost_replies: 1,
        lost_answers: 1,
        confirms: 1,
        forgets: 1,
        ..NOTHING
    };
    keeps_its_guarantees(one_key(leaf, said));
    // Three transactions at once.
    let crowded = Budget {
        crashes: 1,
        confirms: 1,
        ..NOTHING
    };
    keeps_its_guarantees(Protocol {
        open: 3,
        ..one_key(leaf, crowded)
    });
}

#[test]
fn one_key_of_a_leaf_that_can_be_asked() {
    with_one_key(Leaf::Probed);
}

#[test]
fn one_key_of_a_leaf_that_dedups() {
    with_one_key(Leaf::Deduplicating);
}

#[test]
fn one_key_and_an_idempotent_method() {
    with_one_key(Leaf::Idempotent);
}

#[test]
fn one_key_of_a_leaf_that_offers_nothing() {
    with_one_key(Leaf::Parking);
}

#[test]
fn a_claim_of_two_slots_while_the_app_confirms() {
    for leaf in [Leaf::Probed, Leaf::Deduplicating] {
        let late = Budget {
            lapses: 1,
            confirms: 1,
            ..NOTHING
        };
        keeps_its_guarantees(Protocol {
            slots: 2,
            ..one_key(leaf, late)
        });
    }
}

#[test]
fn two_keys_that_one_claim_takes() {
    for leaf in [Leaf::Probed, Leaf::Deduplicating] {
        keeps_its_guarantees(two_keys(
            leaf,
            Budget {
                crashes: 1,
                ..NOTHING
            },
        ));
    }
    for leaf in [Leaf::Idempotent, Leaf::Parking] {
        keeps_its_guarantees(two_keys(
            leaf,
            Budget {
                lapses: 1,
                ..NOTHING
            },
        ));
        keeps_its_guarantees(two_keys(
            leaf,
            Budget {
                crashes: 1,
                lost_answers: 1,
                ..NOTHING
            },
        ));
    }
}

#[test]
fn faults_that_follow_each_other() {
    for leaf in [Leaf::Probed, Leaf::Deduplicating] {
        keeps_its_guarantees(one_key(
            leaf,
            Budget {
                crashes: 2,
                ..NOTHING
            },
        ));
        keeps_its_guarantees(one_key(
            leaf,
            Budget {
                lapses: 1,
                lost_replies: 1,
                ..NOTHING
            },
        ));
    }
    keeps_its_guarantees(one_key(
        Leaf::Parking,
        Budget {
            crashes: 1,
            lapses: 1,
            ..NOTHING
        },
    ));
}

#[test]
fn two_probes_of_one_call() {
    let late = Budget {
        lapses: 1,
        ..NOTHING
    };
    keeps_its_guarantees(Protocol {
        probes: 2,
        ..one_key(Leaf::Probed, late)
    });
}

#[test]
fn every_call_can_still_end_or_be_parked() {
    for leaf in [
        Leaf::Probed,
        Leaf::Deduplicating,
        Leaf::Idempotent,
        Leaf::Parking,
    ] {
        loses_nothing(&one_key(
            leaf,
            Budget {
                crashes: 1,
                lost_answers: 1,
                ..NOTHING
            },
        ));
    }
    for leaf in [Leaf::Deduplicating, Leaf::Parking] {
        loses_nothing(&one_key(
            leaf,
            Budget {
                lapses: 1,
                refusals: 1,
                ..NOTHING
            },
        ));
        let said = Budget {
            lost_replies: 1,
            lost_answers: 1,
            confirms: 1,
            forgets: 1,
            ..NOTHING
        };
        loses_nothing(&one_key(leaf, said));
    }
}
