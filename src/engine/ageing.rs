//! What a leaf owes to its oldest calls: one of each eight that are claimed.
//!
//! As a share, not as a rhythm: a claim that does not look for them owes their turns to a later one, but never more of them
//! than the leaf has places. So urgent calls wait for the oldest no longer than one round of the places takes.

/// At least each eighth claimed call of a leaf is its oldest, whatever its priority.
const AGED_EACH: u32 = 8;

/// The turns of the oldest calls of one leaf.
#[derive(Debug, Default)]
pub(super) struct Ageing {
    /// So many calls were claimed of which no eighth was for the oldest yet.
    calls: u32,
}

impl Ageing {
    /// So many of the next `slots` calls are to be the oldest.
    pub(super) fn owed(&self, slots: u32) -> u32 {
        (self.calls.saturating_add(slots) / AGED_EACH).min(slots)
    }

    /// A claim took `calls`, and `aged` of them as the oldest. `none_left` where it would have taken more of these. The leaf
    /// has so many places.
    pub(super) fn claimed(&mut self, calls: u32, aged: u32, none_left: bool, places: u32) {
        let paid = aged.saturating_mul(AGED_EACH);
        let calls = self.calls.saturating_add(calls).saturating_sub(paid);
        // Where there are none there is nothing to make up for.
        let turns = if none_left { 0 } else { places };
        self.calls = calls.min(
            turns
                .saturating_mul(AGED_EACH)
                .saturating_add(AGED_EACH - 1),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims of these sizes, with so many of the oldest at hand; only those with `true` take these.
    fn taken(ageing: &mut Ageing, claims: impl IntoIterator<Item = (u32, bool)>) -> (u32, u32) {
        let (mut all, mut old) = (0, 0);
        for (slots, takes) in claims {
            let aged = if takes { ageing.owed(slots) } else { 0 };
            ageing.claimed(slots, aged, false, 64);
            all += slots;
            old += aged;
        }
        (all, old)
    }

    #[test]
    fn each_eighth_is_owed_whatever_the_sizes_of_claims() {
        for sizes in [
            &[1][..],
            &[3],
            &[12],
            &[15],
            &[64],
            &[1, 64, 5],
            &[7, 8, 9, 2],
        ] {
            let mut ageing = Ageing::default();
            let claims = sizes.iter().cycle().take(500).map(|slots| (*slots, true));
            let (all, old) = taken(&mut ageing, claims);
            assert_eq!(old, all / 8, "{sizes:?}");
        }
    }

    #[test]
    fn what_large_claims_left_out_small_ones_make_up_for() {
        let mut ageing = Ageing::default();
        let left_out = (0..6).map(|_| (15, false));
        let made_up_for = (0..20).map(|_| (1, true));
        let (all, old) = taken(&mut ageing, left_out.chain(made_up_for));
        assert_eq!((all, old), (110, 13));
    }

    #[test]
    fn nothing_is_made_up_for_where_there_were_none_and_no_more_than_a_round_of_the_places() {
        let mut ageing = Ageing::default();
        ageing.claimed(400, 3, true, 64);
        assert_eq!(ageing.owed(1), 1);
        ageing.claimed(1, 1, false, 64);
        assert_eq!(ageing.owed(6), 0);
        for _ in 0..100 {
            ageing.claimed(64, 0, false, 15);
        }
        assert_eq!(ageing.owed(1000), (8 * 15 + 7 + 1000) / 8);
        // The leaf is ill: one place.
        ageing.claimed(1, 1, false, 1);
        let turns: Vec<u32> = (0..12)
            .map(|_| {
                let aged = ageing.owed(1);
                ageing.claimed(1, aged, false, 1);
                aged
            })
            .collect();
        assert_eq!(turns, [1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    }
}
