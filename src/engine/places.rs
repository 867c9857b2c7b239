//! The places of one leaf: how many requests may be under way, who waits for one, and how many calls are worth
//! claiming before there is a place for them.

use std::{collections::VecDeque, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use super::ramp::{Fares, Ramp};

/// Calls are claimed before there is a place for them, as many as find one within this time: so a place that
/// becomes free never waits for a claim, and a crash leaves no more than this in doubt that was not sent.
const AHEAD: Duration = Duration::from_millis(10);

/// More than that never wait for a place.
const AHEAD_MAX: u32 = 256;

/// Fewer than that are not worth it: a call that is claimed is sent, even where its batch fails meanwhile.
const AHEAD_MIN: u32 = 16;

/// A claimed call that finds no place for so long is given back: its leaf has become slow since the claim.
const PLACE_WAIT: Duration = Duration::from_secs(1);

/// Nor is more than this part of its time spent on that wait, nor on the one for room: what is left is the request's.
const WAIT_PART: u32 = 4;

/// The pace is what was measured in at least this time.
const MEASURED: Duration = Duration::from_millis(20);

/// How long a claimed call with this time limit waits for its place, and for room for its body.
pub(super) fn patience(timeout: Duration) -> Duration {
    PLACE_WAIT.min(timeout / WAIT_PART)
}

/// Who has a place, and who waits for one.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// This instance's share of the leaf's concurrency.
    share: u32,
    ramp: Ramp,
    /// Requests under way, of calls and of probes.
    taken: u32,
    /// Probes among them.
    probes: u32,
    /// A call in doubt found no place for its probe: calls leave one.
    probe_waits: bool,
    /// That was since the last look at what is in doubt.
    found_none: bool,
    /// The last place was taken by a probe.
    probed_last: bool,
    queue: VecDeque<oneshot::Sender<()>>,
    pace: Pace,
}

impl Places {
    pub(super) fn share(&self) -> u32 {
        self.share
    }

    pub(super) fn set_share(&mut self, share: u32) {
        self.share = share;
        self.let_in();
    }

    /// How many requests may be under way now: the share, or less while the leaf recovers.
    pub(super) fn limit(&self) -> u32 {
        self.ramp.of(self.share)
    }

    /// See [`Ramp::note`].
    pub(super) fn note(&mut self, fares: Fares) -> bool {
        let cut = self.ramp.note(fares, self.share);
        self.let_in();
        cut
    }

    /// Requests under way.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// Calls that wait for a place.
    pub(super) fn queued(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// Whether a probe waits for a place.
    pub(super) fn probe_waits(&self) -> bool {
        self.probe_waits
    }

    /// Where both calls and probes wait, calls leave one place; a single one is taken in turns.
    pub(super) fn left_for_probe(&self) -> u32 {
        u32::from(self.probe_waits && !(self.limit() == 1 && self.probed_last))
    }

    /// Places that a call may take now.
    pub(super) fn free(&self) -> u32 {
        let free = self.limit().saturating_sub(self.taken);
        free.saturating_sub(self.left_for_probe())
    }

    /// How many calls may wait for a place, at the pace of now.
    pub(super) fn ahead(&mut self, now: Instant) -> u32 {
        worth_it(self.pace.within(AHEAD, now))
    }

    /// Whether those that wait are too few.
    pub(super) fn runs_dry(&self) -> bool {
        self.queued() * 2 <= worth_it(self.pace.last(AHEAD))
    }

    /// A call takes a place, or waits until it hears that it has one.
    pub(super) fn enter(&mut self) -> Option<oneshot::Receiver<()>> {
        if self.queue.is_empty() && self.free() > 0 {
            self.take();
            return None;
        }
        let (turn, heard) = oneshot::channel();
        self.queue.push_back(turn);
        Some(heard)
    }

    /// A request has ended.
    pub(super) fn leave(&mut self, probe: bool) {
        self.taken = self.taken.saturating_sub(1);
        if probe {
            self.probes = self.probes.saturating_sub(1);
        }
        self.let_in();
    }

    /// Whether a probe may go: while calls wait too, probes leave them half of the share, and take turns with
    /// them for a single place.
    pub(super) fn has_room_for_probe(&self, calls_wait: bool) -> bool {
        let turn = !calls_wait
            || if self.limit() > 1 {
                self.probes < self.limit() / 2
            } else {
                !self.probed_last
            };
        self.limit() > self.taken && turn
    }

    /// A probe found no place, for the time being.
    pub(super) fn keep_for_probe(&mut self) {
        self.probe_waits = true;
        self.found_none = true;
    }

    /// All that is in doubt was looked at. What waited before and did not ask for a place this time is over, without a
    /// probe or by another instance's. `true` where no place is kept any more.
    pub(super) fn looked_at_doubts(&mut self) -> bool {
        let kept = self.probe_waits;
        self.probe_waits = std::mem::take(&mut self.found_none);
        self.let_in();
        kept && !self.probe_waits
    }

    pub(super) fn enter_as_probe(&mut self) {
        self.probe_waits = false;
        self.probed_last = true;
        self.probes += 1;
        self.taken += 1;
    }

    fn take(&mut self) {
        self.taken += 1;
        self.probed_last = false;
        self.pace.one_more();
    }

    fn let_in(&mut self) {
        while self.free() > 0 {
            match self.queue.pop_front() {
                // One that has given up does not hear it.
                Some(turn) => {
                    if turn.send(()).is_ok() {
                        self.take();
                    }
                }
                None => return,
            }
        }
    }
}

fn worth_it(ahead: u32) -> u32 {
    if ahead < AHEAD_MIN {
        0
    } else {
        ahead.min(AHEAD_MAX)
    }
}

/// How many requests are begun in a second.
#[derive(Debug)]
struct Pace {
    since: Instant,
    begun: u32,
    per_second: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            begun: 0,
            per_second: 0.0,
        }
    }
}

impl Pace {
    fn one_more(&mut self) {
        self.begun = self.begun.saturating_add(1);
    }

    /// So many are begun within this time, if it goes on like this.
    fn within(&mut self, time: Duration, now: Instant) -> u32 {
        let measured = now.saturating_duration_since(self.since);
        if measured >= MEASURED {
            let per_second = f64::from(self.begun) / measured.as_secs_f64();
            // What is older than a few measurements counts no more.
            self.per_second = self.per_second.midpoint(per_second);
            self.since = now;
            self.begun = 0;
        }
        self.last(time)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a product of times and a count, never negative"
    )]
    fn last(&self, time: Duration) -> u32 {
        (self.per_second * time.as_secs_f64()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(share: u32) -> Places {
        let mut places = Places::default();
        places.set_share(share);
        places
    }

    #[test]
    fn no_more_than_the_share_has_a_place_and_who_waits_goes_in_turn() {
        let mut places = places(2);
        assert!(places.enter().is_none());
        assert!(places.enter().is_none());
        let mut waiting: Vec<_> = (0..3).filter_map(|_| places.enter()).collect();
        assert_eq!((places.taken(), places.queued()), (2, 3));
        places.leave(false);
        let told: Vec<bool> = waiting.iter_mut().map(|w| w.try_recv().is_ok()).collect();
        assert_eq!(told, [true, false, false]);
        assert_eq!((places.taken(), places.queued()), (2, 2));
        // One that has given up takes no place.
        drop(waiting.remove(1));
        places.leave(false);
        assert!(waiting[1].try_recv().is_ok());
        assert_eq!((places.taken(), places.queued()), (2, 0));
    }

    #[test]
    fn a_share_that_shrinks_lets_nobody_in_and_one_that_grows_does() {
        let mut places = places(2);
        assert!(places.enter().is_none() && places.enter().is_none());
        let mut waits = places.enter().unwrap();
        places.set_share(1);
        places.leave(false);
        assert!(waits.try_recv().is_err(), "one is still under way");
        places.set_share(2);
        assert!(waits.try_recv().is_ok());
    }

    #[test]
    fn a_probe_that_waits_gets_the_next_place_but_one() {
        let mut places = places(2);
        assert!(places.enter().is_none() && places.enter().is_none());
        let mut waits = places.enter().unwrap();
        assert!(!places.has_room_for_probe(true));
        places.keep_for_probe();
        places.leave(false);
        assert!(waits.try_recv().is_err(), "it is kept for the probe");
        assert!(places.has_room_for_probe(true));
        places.enter_as_probe();
        places.leave(true);
        assert!(waits.try_recv().is_ok());
    }

    #[test]
    fn a_place_is_kept_for_no_longer_than_a_probe_waits() {
        let mut places = places(1);
        assert!(places.enter().is_none());
        places.keep_for_probe();
        assert!(!places.looked_at_doubts(), "it waits");
        places.leave(false);
        let mut waits = places.enter().unwrap();
        assert!(places.looked_at_doubts(), "nobody has asked for it again");
        assert!(waits.try_recv().is_ok());
    }

    #[test]
    fn a_single_place_is_taken_in_turns() {
        let mut places = places(1);
        assert!(places.enter().is_none());
        let mut waits = places.enter().unwrap();
        places.keep_for_probe();
        places.leave(false);
        assert!(waits.try_recv().is_err() && places.has_room_for_probe(true));
        places.enter_as_probe();
        places.keep_for_probe();
        places.leave(true);
        assert!(waits.try_recv().is_ok(), "now it is the call's turn");
    }

    #[test]
    fn as_many_wait_as_find_a_place_soon() {
        let mut places = places(8);
        let mut now = Instant::now();
        assert_eq!(places.ahead(now), 0, "nothing is known of its pace");
        for _ in 0..10 {
            for _ in 0..100 {
                drop(places.enter());
                places.leave(false);
            }
            now += MEASURED;
            places.ahead(now);
        }
        // 100 in 20 ms are 50 in 10 ms.
        assert!((40..=60).contains(&places.ahead(now)));
        // A leaf that answers no more is not claimed for.
        for _ in 0..4 {
            now += MEASURED;
            places.ahead(now);
        }
        assert_eq!(places.ahead(now), 0);
    }
}
