//! Where claims begin to look: the low-water marks.
//!
//! What was claimed leaves dead entries at the head of the claim's indexes. PostgreSQL removes them as it meets
//! them, unless some old snapshot is open, of a backup, of a report: then each claim walks over all that was
//! claimed since (PostgreSQL, chapter 73.1). The marks let it begin behind them. They prove nothing: ids commit
//! late, and what waited for its key is due with an old id. So they stay behind what was reached by some calls, and a claim from the
//! head follows: at once where there is no backlog, as seldom as keeps it under a fifth of the time where there is one, and
//! under a twentieth where it is slow. And the look ([`super::lookout`]), which begins at the head for each leaf, says where
//! the first of the most urgent was left: so a head that is slow for one leaf keeps none of another's from being found within a
//! poll interval. The less urgent that were left have their turn after it, and when a claim begins at the head.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::store::claim::{Claims, Start};

/// A claim from the head may take so long, and so much more for each call, before it counts as slow.
const SLOW: Duration = Duration::from_millis(3);
const SLOW_PER_CALL: Duration = Duration::from_micros(30);

/// And one that took nothing, of which the time of the whole statement is known.
const SLOW_FOR_NOTHING: Duration = Duration::from_millis(10);

/// For each part of the time that a slow claim from the head takes, so many without one follow.
const SELDOM: u32 = 19;

/// And one that is not slow, while there is a backlog: it may cost more than it should long before that shows.
const AT_TIMES: u32 = 4;

/// A mark stays behind what was reached by so many calls at least, and by no more than twice as many: what commits a little
/// late is still found at once, and a claim walks over few dead entries for it.
const BEHIND: usize = 64;

/// Until so many are reached it stays behind the first one by so many ids.
const FIRST_BEHIND: i64 = 64;

/// Marks of more priorities than this cost more than they spare: those of the least urgent are forgotten.
const PRIORITIES_MAX: usize = 16;

/// The marks of all leaves.
#[derive(Debug)]
pub(super) struct Marks {
    leaves: BTreeMap<String, Mark>,
    head_again: Instant,
    /// How long the last claim from the head took.
    head_took: Duration,
    /// It was slow, and no other claim has come since. The next begins at the marks: a call that has just come in does not wait
    /// for a walk over what is dead.
    marks_first: bool,
}

/// Those of one leaf.
#[derive(Debug, Default)]
struct Mark {
    /// Where claims begin.
    from: Start,
    /// Where they will, when some calls more are reached.
    next: Start,
    reached: Start,
    /// So many calls were reached since `next` was.
    calls: usize,
    /// Claims begin here instead, until what was left there is taken.
    before: Option<Start>,
    /// And not again before then.
    before_again: Option<Instant>,
}

impl Mark {
    fn reached(&mut self, reached: &Start, calls: usize) {
        if let Some(before) = &mut self.before {
            before.advance(reached);
            let mut further = before.clone();
            further.advance(&self.from);
            if further == *before {
                // It is nowhere before the mark any more.
                self.before = None;
            }
        }
        self.reached.advance(reached);
        while self.reached.fresh.len() > PRIORITIES_MAX {
            self.reached.fresh.pop_last();
        }
        // The first call that is reached says already where to begin.
        for (priority, call) in &self.reached.fresh {
            if !self.from.fresh.contains_key(priority) {
                self.from.fresh.insert(*priority, call - FIRST_BEHIND);
                self.next.fresh.insert(*priority, *call);
            }
        }
        if self.from.due <= 0.0 {
            self.from.due = self.reached.due;
        }
        self.calls += calls;
        if self.calls >= BEHIND {
            self.calls = 0;
            self.from = std::mem::replace(&mut self.next, self.reached.clone());
        }
    }
}

impl Default for Marks {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            leaves: BTreeMap::new(),
            head_again: now,
            head_took: Duration::ZERO,
            marks_first: false,
        }
    }
}

impl Marks {
    /// Whether the next claim begins at the head.
    pub(super) fn is_head_due(&self, now: Instant) -> bool {
        now >= self.head_again && !self.marks_first
    }

    /// When a claim begins at the head again.
    pub(super) fn head_again(&self) -> Instant {
        self.head_again
    }

    /// Where the next claim of this leaf begins, if not at the head.
    pub(super) fn of(&self, leaf: &str) -> Start {
        let mark = self.leaves.get(leaf);
        let from = mark.map(|mark| mark.before.as_ref().unwrap_or(&mark.from));
        from.cloned().unwrap_or_default()
    }

    /// Whether this leaf has had calls of several priorities.
    pub(super) fn know_several(&self, leaf: &str) -> bool {
        self.leaves
            .get(leaf)
            .is_some_and(|mark| mark.reached.fresh.len() > 1)
    }

    /// The look has found the first calls of these leaves here. As seldom as claims begin at a head, in a backlog.
    pub(super) fn seen(&mut self, firsts: &BTreeMap<String, Start>, now: Instant) {
        for (leaf, first) in firsts {
            if let Some(mark) = self.leaves.get_mut(leaf)
                && mark.before_again.is_none_or(|again| now >= again)
                && let Some(before) = mark.from.before(first)
            {
                mark.before = Some(before);
                mark.before_again = Some(now + self.head_took * AT_TIMES);
            }
        }
    }

    /// Nothing is left of what a claim of everything could have taken of this leaf.
    pub(super) fn all_taken(&mut self, leaf: &str) {
        if let Some(mark) = self.leaves.get_mut(leaf) {
            mark.before = None;
        }
    }

    /// What a claim took, and how long it was at it. `backlog` is whether it left some.
    pub(super) fn claimed(
        &mut self,
        from_head: bool,
        claims: &Claims,
        backlog: bool,
        now: Instant,
    ) {
        for (leaf, reached) in &claims.reached {
            let calls = claims.claimed.iter().filter(|call| call.leaf == *leaf);
            let calls = calls.count();
            self.leaves
                .entry(leaf.clone())
                .or_default()
                .reached(reached, calls);
        }
        if !from_head {
            self.marks_first = false;
        }
        if let (true, Some(looked_for)) = (from_head, claims.looked_for) {
            let calls = u32::try_from(claims.claimed.len()).unwrap_or(u32::MAX);
            let slow = if calls == 0 {
                looked_for > SLOW_FOR_NOTHING
            } else {
                looked_for > SLOW + SLOW_PER_CALL * calls
            };
            let without = match (slow, backlog) {
                (true, _) => SELDOM,
                (false, true) => AT_TIMES,
                (false, false) => 0,
            };
            self.head_again = now + looked_for * without;
            self.head_took = looked_for;
            self.marks_first = slow;
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
    fn the_head_is_always_looked_at_where_there_is_no_backlog() {
        let mut marks = Marks::default();
        let now = Instant::now();
        marks.claimed(true, &claims(1, &[(0, 10)]), false, now);
        assert!(marks.is_head_due(now));
    }

    #[test]
    fn a_backlog_is_taken_from_the_marks_but_for_a_fifth_of_the_time() {
        let mut marks = Marks::default();
        let now = Instant::now();
        marks.claimed(true, &claims(1, &[(0, 10)]), true, now);
        assert!(!marks.is_head_due(now + Duration::from_micros(3_900)));
        assert!(marks.is_head_due(now + Duration::from_millis(4)));
    }

    #[test]
    fn a_slow_head_is_left_alone_for_a_while() {
        let mut marks = Marks::default();
        let now = Instant::now();
        marks.claimed(true, &claims(100, &[(0, 10)]), false, now);
        assert!(!marks.is_head_due(now + Duration::from_millis(1_800)));
        let later = now + Duration::from_secs(2);
        assert!(
            !marks.is_head_due(later),
            "what comes in has its turn before"
        );
        marks.claimed(false, &claims(1, &[]), false, later);
        assert!(marks.is_head_due(later));
    }

    #[test]
    fn a_head_that_is_slow_for_nothing_is_left_alone_too() {
        let mut marks = Marks::default();
        let now = Instant::now();
        marks.claimed(true, &claims(9, &[]), false, now);
        assert!(marks.is_head_due(now));
        marks.claimed(true, &claims(11, &[]), false, now);
        assert!(!marks.is_head_due(now));
    }

    /// Reaches so many calls of one priority, up to this one.
    fn reach(marks: &mut Marks, priority: i16, call: i64, calls: usize) {
        let start = Start {
            fresh: [(priority, call)].into(),
            due: 0.0,
        };
        let mark = marks.leaves.entry("leaf".to_owned()).or_default();
        mark.reached(&start, calls);
    }

    #[test]
    fn marks_stay_behind_what_was_reached_by_some_calls() {
        let mut marks = Marks::default();
        for call in 1..=1000 {
            reach(&mut marks, 0, call, 1);
            let behind = call - marks.of("leaf").fresh.get(&0).unwrap_or(&0);
            assert!((63..=128).contains(&behind), "{behind} at {call}");
        }
    }

    #[test]
    fn what_the_look_finds_before_a_mark_is_where_claims_begin_until_it_is_taken() {
        let mut marks = Marks::default();
        let now = Instant::now();
        reach(&mut marks, 0, 1000, 64);
        reach(&mut marks, 0, 2000, 64);
        let first = |call| {
            let start = Start {
                fresh: [(0, call)].into(),
                due: f64::INFINITY,
            };
            [("leaf".to_owned(), start)].into()
        };
        marks.seen(&first(1001), now);
        assert_eq!(marks.of("leaf").fresh, [(0, 1000)].into());
        marks.seen(&first(10), now);
        assert_eq!(marks.of("leaf").fresh, [(0, 9)].into());
        reach(&mut marks, 0, 40, 5);
        assert_eq!(marks.of("leaf").fresh, [(0, 40)].into());
        reach(&mut marks, 0, 1500, 5);
        assert_eq!(marks.of("leaf").fresh, [(0, 1000)].into());
        marks.seen(&first(10), now);
        marks.all_taken("leaf");
        assert_eq!(marks.of("leaf").fresh, [(0, 1000)].into());
    }

    #[test]
    fn claims_begin_at_the_marks_again_as_soon_as_nothing_is_left_before_one_of_them() {
        let mut marks = Marks::default();
        let now = Instant::now();
        for _ in 0..2 {
            reach(&mut marks, 0, 1000, 64);
            reach(&mut marks, 5, 1000, 64);
        }
        let first = Start {
            fresh: [(0, 10)].into(),
            due: f64::INFINITY,
        };
        marks.seen(&[("leaf".to_owned(), first)].into(), now);
        assert_eq!(marks.of("leaf").fresh, [(0, 9), (5, 1000)].into());
        reach(&mut marks, 0, 1001, 5);
        assert_eq!(marks.of("leaf").fresh, [(0, 1000), (5, 1000)].into());
        assert!(marks.leaves["leaf"].before.is_none());
    }

    #[test]
    fn of_many_priorities_the_least_urgent_are_forgotten() {
        let mut marks = Marks::default();
        for priority in 0..20 {
            reach(&mut marks, priority, 10, 64);
        }
        assert!(marks.know_several("leaf"));
        let most = i16::try_from(PRIORITIES_MAX).unwrap();
        assert!(
            marks
                .of("leaf")
                .fresh
                .keys()
                .eq((0..most).collect::<Vec<_>>().iter())
        );
    }

    #[test]
    fn marks_only_go_on_and_each_priority_has_its_own() {
        let mut marks = Marks::default();
        for _ in 0..2 {
            reach(&mut marks, 0, 100, 64);
            reach(&mut marks, 5, 300, 64);
            reach(&mut marks, 0, 40, 64);
        }
        assert_eq!(marks.of("leaf").fresh, [(0, 100), (5, 300)].into());
        assert_eq!(marks.of("other"), Start::default());
    }
}
