//! Where claims begin to look: the low-water marks.
//!
//! What was claimed leaves dead entries at the head of the claim's indexes. PostgreSQL removes them as it meets
//! them, unless some old snapshot is open, of a backup, of a report: then each claim walks over all that was
//! claimed since (PostgreSQL, chapter 73.1). The marks let it begin behind them. They prove nothing: ids commit
//! late, and what waited for its key is due with an old id. So a claim from the head follows, at once while that
//! costs nothing, else as seldom as keeps it under a twentieth of the time.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::store::claim::{Claims, Start};

/// A claim from the head may take so long, and so much more for each call, before it counts as slow.
const SLOW: Duration = Duration::from_millis(3);
const SLOW_PER_CALL: Duration = Duration::from_micros(30);

/// For each part of the time that a claim from the head takes, so many without one follow.
const SELDOM: u32 = 19;

/// Of more priorities than this the marks are of no use.
const PRIORITIES_MAX: usize = 16;

/// The marks of all leaves.
#[derive(Debug)]
pub(super) struct Marks {
    starts: BTreeMap<String, Start>,
    head_again: Instant,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            starts: BTreeMap::new(),
            head_again: Instant::now(),
        }
    }
}

impl Marks {
    /// Whether the next claim begins at the head.
    pub(super) fn is_head_due(&self, now: Instant) -> bool {
        now >= self.head_again
    }

    /// Where the next claim of this leaf begins, if not at the head.
    pub(super) fn of(&self, leaf: &str) -> Start {
        self.starts.get(leaf).cloned().unwrap_or_default()
    }

    /// Whether this leaf has had calls of several priorities.
    pub(super) fn know_several(&self, leaf: &str) -> bool {
        self.starts
            .get(leaf)
            .is_some_and(|start| start.fresh.len() > 1)
    }

    /// What a claim took, and how long it was at it. One that found nothing does not say.
    pub(super) fn claimed(&mut self, from_head: bool, claims: &Claims, now: Instant) {
        for (leaf, reached) in &claims.reached {
            let start = self.starts.entry(leaf.clone()).or_default();
            start.advance(reached);
            if start.fresh.len() > PRIORITIES_MAX {
                *start = Start::default();
            }
        }
        if let (true, Some(looked_for)) = (from_head, claims.looked_for) {
            let calls = u32::try_from(claims.claimed.len()).unwrap_or(u32::MAX);
            let slow = looked_for > SLOW + SLOW_PER_CALL * calls;
            self.head_again = if slow { now + looked_for * SELDOM } else { now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(looked_for: u64, reached: &[(i16, i64)]) -> Claims {
        let start = Start {
            fresh: reached.iter().copied().collect(),
            due: 0.0,
        };
        Claims {
            looked_for: Some(Duration::from_millis(looked_for)),
            reached: [("leaf".to_owned(), start)].into(),
            ..Claims::default()
        }
    }

    #[test]
    fn the_head_is_always_looked_at_while_that_costs_nothing() {
        let mut marks = Marks::default();
        let now = Instant::now();
        marks.claimed(true, &claims(1, &[(0, 10)]), now);
        assert!(marks.is_head_due(now));
    }

    #[test]
    fn a_slow_head_is_left_alone_for_a_while() {
        let mut marks = Marks::default();
        let now = Instant::now();
        marks.claimed(true, &claims(100, &[(0, 10)]), now);
        assert!(!marks.is_head_due(now + Duration::from_millis(1_800)));
        assert!(marks.is_head_due(now + Duration::from_secs(2)));
        assert_eq!(marks.of("leaf").fresh, [(0, 10)].into());
    }

    #[test]
    fn marks_only_go_on_and_each_priority_has_its_own() {
        let mut marks = Marks::default();
        let now = Instant::now();
        marks.claimed(true, &claims(0, &[(0, 10), (5, 3)]), now);
        marks.claimed(true, &claims(0, &[(0, 4), (5, 30)]), now);
        assert_eq!(marks.of("leaf").fresh, [(0, 10), (5, 30)].into());
        assert_eq!(marks.of("other"), Start::default());
    }
}
