//! What a leaf owes to its oldest calls: one of each eight that are claimed.

/// At least each eighth claimed call of a leaf is its oldest, whatever its priority.
const AGED_EACH: u32 = 8;

/// Of no more calls than these is an eighth owed at once: the oldest that come late must not stop the urgent.
const CALLS_MAX: u32 = 512;

/// The turns of the oldest calls of one leaf.
#[derive(Debug, Default)]
pub(super) struct Ageing {
    /// So many calls were claimed of which no eighth was for the oldest yet.
    calls: u32,
}

impl Ageing {
    /// So many of the next `slots` calls are to be the oldest.
    pub(super) fn owed(&self, slots: u32) -> u32 {
        ((self.calls + slots) / AGED_EACH).min(slots)
    }

    /// A claim took `calls`, and `aged` of them as the oldest. `none_left` where it would have taken more of these.
    pub(super) fn claimed(&mut self, calls: u32, aged: u32, none_left: bool) {
        let paid = aged.saturating_mul(AGED_EACH);
        let calls = self.calls.saturating_add(calls).saturating_sub(paid);
        // Where there are none there is nothing to make up for.
        self.calls = calls.min(if none_left { AGED_EACH - 1 } else { CALLS_MAX });
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
            ageing.claimed(slots, aged, false);
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
    fn nothing_is_made_up_for_where_there_were_none_or_for_long() {
        let mut ageing = Ageing::default();
        ageing.claimed(400, 3, true);
        assert_eq!(ageing.owed(1), 1);
        ageing.claimed(1, 1, false);
        assert_eq!(ageing.owed(6), 0);
        for _ in 0..100 {
            ageing.claimed(64, 0, false);
        }
        assert_eq!(ageing.owed(1000), (512 + 1000) / 8);
    }
}
