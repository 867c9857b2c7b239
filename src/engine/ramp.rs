//! A leaf that fails again and again gets one request at a time, and as it answers again its places come back one by one:
//! one more with each answer, so twice as many in each round trip.
//!
//! The breaker is for what can't be reached at all; this is for what can, and is in trouble: time-outs, 429, 5xx. It
//! is also what a leaf gets whose breaker closes.

use crate::domain::evidence::{Evidence, NotSent};

/// So many in a row are no accident of single calls.
const FAILURES: u32 = 5;

/// How many places of one leaf may be used, by how it fares.
#[derive(Debug, Default)]
pub(super) struct Ramp {
    failures: u32,
    /// While it comes back.
    places: Option<u32>,
}

impl Ramp {
    /// What it leaves of this share.
    pub(super) fn of(&self, share: u32) -> u32 {
        self.places.map_or(share, |places| places.min(share))
    }

    /// Takes note of how the leaf fares. `true` where that cuts it down to one place.
    pub(super) fn note(&mut self, fares: Fares, share: u32) -> bool {
        match fares {
            Fares::Well => {
                self.failures = 0;
                self.places = self
                    .places
                    .map(|places| places.saturating_add(1))
                    // Without a share, as after a gap in the lease, nothing shows how it would fare with more.
                    .filter(|places| *places < share || share == 0);
                false
            }
            Fares::Ill => {
                self.failures = self.failures.saturating_add(1);
                if self.failures < FAILURES {
                    return false;
                }
                self.places.replace(1).is_none()
            }
            Fares::Unknown => false,
        }
    }
}

/// What an exchange tells of the leaf, whatever it means for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fares {
    /// It answers: also who says no is at work.
    Well,
    /// It can't be reached, does not answer, or answers that it is not able to (RFC 9110 section 15.6, RFC 6585
    /// section 4).
    Ill,
    /// Nothing was sent, or nobody waited for the answer.
    Unknown,
}

impl Fares {
    /// Of what was seen. `given_up` says that this side broke it off.
    pub(super) fn seen(evidence: &Evidence, given_up: bool) -> Self {
        match evidence {
            _ if given_up => Self::Unknown,
            Evidence::Answered(answer) => match answer.status {
                408 | 429 | 500.. => Self::Ill,
                _ => Self::Well,
            },
            Evidence::Unanswered(_)
            | Evidence::NotSent(NotSent::Unconnected(_) | NotSent::Refused(_)) => Self::Ill,
            Evidence::NotSent(
                NotSent::LeaseOver | NotSent::OutOfTime(_) | NotSent::Unsendable(_),
            ) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_leave_one_place_and_answers_bring_the_others_back() {
        let mut ramp = Ramp::default();
        let cut: Vec<bool> = (0..6).map(|_| ramp.note(Fares::Ill, 8)).collect();
        assert_eq!(cut, [false, false, false, false, true, false]);
        assert_eq!(ramp.of(8), 1);
        let back: Vec<u32> = (0..8)
            .map(|_| {
                ramp.note(Fares::Well, 8);
                ramp.of(8)
            })
            .collect();
        assert_eq!(back, [2, 3, 4, 5, 6, 7, 8, 8]);
    }

    #[test]
    fn single_failures_cost_nothing() {
        let mut ramp = Ramp::default();
        for _ in 0..100 {
            for _ in 1..FAILURES {
                assert!(!ramp.note(Fares::Ill, 8));
            }
            assert!(!ramp.note(Fares::Unknown, 8));
            assert!(!ramp.note(Fares::Well, 8));
        }
        assert_eq!(ramp.of(8), 8);
    }

    #[test]
    fn a_leaf_that_falls_over_again_starts_anew() {
        let mut ramp = Ramp::default();
        for _ in 0..FAILURES {
            ramp.note(Fares::Ill, 8);
        }
        for _ in 0..3 {
            ramp.note(Fares::Well, 8);
        }
        assert_eq!(ramp.of(8), 4);
        for _ in 0..FAILURES {
            ramp.note(Fares::Ill, 8);
        }
        assert_eq!(ramp.of(8), 1);
        assert_eq!(ramp.of(0), 0, "a share of none stays none");
        ramp.note(Fares::Well, 0);
        assert_eq!(ramp.of(8), 2, "and forgets nothing");
    }
}
