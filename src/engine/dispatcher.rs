//! Claims calls for free places and for those that soon will be, and starts their attempts.
//!
//! It never claims more than is sent within milliseconds ([`super::places`]): so a claim is the durable mark "may have been sent", and
//! a lease that runs out is a doubt. It polls; notifications only make it look sooner.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    attempt::attempt,
    context::Shared,
    driver::backoff,
    lane::{Lane, Slot},
    lease::BootTime,
    marks::Marks,
    reclaimer,
    rest::{AWAKE_POLL, Rest},
};
use crate::{
    domain::call::Claimed,
    observe::Observation,
    shutdown::{Stop, Tasks},
    store::{
        StoreError,
        claim::{Claims, Looking, Want},
    },
};

/// A call whose credential can't be used, or whose breaker is open, is looked at again after this time.
pub(super) const PUT_OFF: Duration = Duration::from_secs(5);

/// A claim that meets another is tried again so often before it waits for the next round.
const CLAIM_TRIES: u32 = 3;

/// Calls that can't go are moved out of the way in bites of this size.
const SPARE: u32 = 256;

/// While new calls come in, it looks so often at what else may be due: retries, resends, the oldest of all priorities,
/// and what is in the way. Looking at all that takes three times as long.
const EVERYTHING_EACH: Duration = Duration::from_millis(50);

/// And so often while some of that is left over by each such look, or a flood of new calls would be nearly all that is sent.
const LEFT_OVER_EACH: Duration = Duration::from_millis(5);

const NAME: &str = "dispatcher";

/// Spawns the dispatcher; it ends with `stop.claiming`.
pub(super) fn spawn(tasks: &Tasks, context: &Shared, attempts: &Tasks, stop: &Stop) {
    let dispatcher = Dispatcher {
        context: context.clone(),
        attempts: attempts.clone(),
        rest: Rest::new(context),
        failures: 0,
        spare: 0,
        marks: Marks::default(),
        everything_at: Instant::now(),
    };
    let claiming = stop.claiming.clone();
    let stopped = claiming.clone();
    tasks.spawn_loop(NAME, claiming, async move {
        let mut dispatcher = dispatcher;
        while !stopped.is_cancelled() {
            let wait = dispatcher.round().await;
            dispatcher
                .context
                .turns
                .turned(NAME, wait + Duration::from_secs(60));
            let nudges = &dispatcher.context.nudges;
            let failed = dispatcher.failures > 0;
            let hint = async {
                if failed {
                    // A hint does not shorten a backoff.
                    return std::future::pending().await;
                }
                tokio::select! {
                    () = nudges.work.taken() => {}
                    () = nudges.slot.taken() => {}
                }
            };
            tokio::select! {
                () = stopped.cancelled() => {}
                () = hint => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    });
}

/// What a round came to.
#[derive(Debug, Default)]
struct Round {
    taken: usize,
    /// The next one should follow after this time.
    again: Option<Duration>,
    /// Calls that can't go were in the way.
    put_off: bool,
    /// See [`Claims::due_left`].
    due_left: bool,
}

/// The wait, cut where a lane is to be looked at before.
fn sooner(wait: Duration, look_again: Option<Instant>) -> Duration {
    match look_again {
        Some(at) => wait.min(at.saturating_duration_since(Instant::now()).max(AWAKE_POLL)),
        None => wait,
    }
}

struct Dispatcher {
    context: Shared,
    attempts: Tasks,
    rest: Rest,
    failures: u32,
    /// So many calls more are looked at, after a round that had to put some off.
    spare: u32,
    marks: Marks,
    /// When it looks at everything again.
    everything_at: Instant,
}

impl Dispatcher {
    /// Claims once, starts what was claimed, and says how long to wait.
    async fn round(&mut self) -> Duration {
        let poll = self.context.dispatch().poll_interval;
        if !self.context.may_send() {
            // The lease does not run, or the database is another: the loops that know will say so.
            return poll;
        }
        let now = Instant::now();
        let told = self.rest.told().await;
        let firsts = self.context.take_firsts();
        self.marks.seen(&firsts, now);
        let from_head = self.marks.is_head_due(now);
        let (mut wants, look_again) = self.wants(from_head);
        let mixed = |want: &Want| want.aged > 0 && self.marks.know_several(&want.leaf);
        let looking = if now < self.everything_at && !wants.iter().any(mixed) {
            for want in &mut wants {
                want.aged = 0;
            }
            Looking::Fresh
        } else {
            Looking::Everything {
                put_off: PUT_OFF,
                spare: self.spare,
            }
        };
        if wants.is_empty() && self.context.claims_work.load(Ordering::SeqCst) {
            // All slots are taken, or no leaf may be tried: a free slot or the time wakes it. Only one that
            // does not know whether claiming works asks all the same: it may have no share for long.
            return sooner(poll, look_again);
        }
        let claimed = self.claim(&wants, looking, from_head).await;
        for want in &wants {
            let lane = self.context.lanes.get(&want.leaf);
            if lane.is_some_and(|lane| lane.round_over()) {
                self.context.nudges.doubt.give();
            }
        }
        match claimed {
            Ok(Round {
                taken,
                again,
                put_off,
                due_left,
            }) => {
                self.failures = 0;
                if looking != Looking::Fresh {
                    self.spare = if put_off { SPARE } else { 0 };
                    // What was put off was in the way of others.
                    let each = match (put_off, due_left) {
                        (true, _) => Duration::ZERO,
                        (false, true) => LEFT_OVER_EACH,
                        (false, false) => EVERYTHING_EACH,
                    };
                    self.everything_at = Instant::now() + each;
                }
                self.context.claims_work.store(true, Ordering::SeqCst);
                self.context.worked();
                if taken > 0 {
                    self.rest.found(taken, told).await;
                }
                if let Some(wait) = again {
                    return wait;
                }
                let all = looking != Looking::Fresh && from_head;
                // Nothing rests on a look at a part.
                let part = match looking {
                    Looking::Fresh => self.everything_at,
                    Looking::Everything { .. } => self.marks.head_again(),
                };
                let wait = self.rest.wait((!all).then_some(part)).await;
                sooner(wait, look_again)
            }
            Err(error) => {
                self.failures += 1;
                self.context.claims_work.store(false, Ordering::SeqCst);
                self.context.failed(&error);
                backoff().delay(self.failures, None)
            }
        }
    }

    /// What each lane can take, and when one that can't is to be looked at again.
    fn wants(&self, from_head: bool) -> (Vec<Want>, Option<Instant>) {
        let now = Instant::now();
        let mut look_again: Option<Instant> = None;
        let mut wants = Vec::new();
        for lane in self.context.lanes.all() {
            match lane.want(now) {
                Ok(want) => wants.push(Want {
                    // A claim that looks at all priorities takes its time: elsewhere it is a whole one, when it is its turn,
                    // or has all that may be owed.
                    aged: if from_head || want.aged >= want.slots.min(lane.limit()) {
                        want.aged
                    } else {
                        0
                    },
                    from: if from_head {
                        want.from
                    } else {
                        self.marks.of(&want.leaf)
                    },
                    ..want
                }),
                Err(Some(at)) => {
                    look_again = Some(look_again.map_or(at, |earlier| earlier.min(at)));
                }
                Err(None) => {}
            }
        }
        (wants, look_again)
    }

    /// One round of claiming.
    async fn claim(
        &mut self,
        wants: &[Want],
        looking: Looking,
        from_head: bool,
    ) -> Result<Round, StoreError> {
        let started = Instant::now();
        // Before the claim: whoever took over what it took, did so after a gap that ends this term.
        let term = self.context.lease.term();
        let claimed = BootTime::now();
        let claims = self.claim_together(wants, looking).await?;
        let now = Instant::now();
        let taken = claims.claimed.len();
        self.context.observer.emit(Observation::Claimed {
            calls: taken,
            took: started.elapsed(),
        });
        let mut backlog = false;
        for want in wants {
            let calls = claims
                .claimed
                .iter()
                .filter(|call| call.leaf == want.leaf)
                .count();
            if let Some(lane) = self.context.lanes.get(&want.leaf) {
                let aged = claims.aged.get(&want.leaf).copied().unwrap_or(0);
                let calls = u32::try_from(calls).unwrap_or(u32::MAX);
                lane.claimed(want, calls, aged, !claims.cut && claims.put_off == 0);
                backlog |= lane.has_backlog();
                if looking != Looking::Fresh && !claims.cut && !lane.has_backlog() {
                    self.marks.all_taken(&want.leaf);
                }
            }
        }
        self.marks.claimed(from_head, &claims, backlog, now);
        if self.context.stop.claiming.is_cancelled() {
            reclaimer::set_free(&self.context, &claims.claimed).await;
            return Ok(Round {
                taken,
                ..Round::default()
            });
        }
        let due_left = claims.due_left;
        let cut = claims.cut;
        for mut call in claims.claimed {
            // The time from the claim to here is part of the way from the commit to the send.
            call.waited += started.elapsed();
            // A reload may have taken the leaf away: what was claimed for it is given back by the reclaimer.
            let Some(lane) = self.context.lanes.get(&call.leaf) else {
                self.context.held.release(call.id, call.round);
                continue;
            };
            self.start(lane, call, term, claimed);
        }
        // Due calls were moved out of the way, or a lane can take more at once (its rate's next token).
        let put_off = claims.put_off > 0;
        if put_off {
            // Some of them may be doubts now.
            self.context.nudges.doubt.give();
        }
        let again = if put_off || cut && taken > 0 || wants.iter().any(|it| self.has_more(it)) {
            Some(Duration::ZERO)
        } else {
            // Others were at each of the calls that it met.
            cut.then_some(AWAKE_POLL)
        };
        Ok(Round {
            taken,
            again,
            put_off,
            due_left,
        })
    }

    /// Whether the lane took all that it wanted and can take more now.
    fn has_more(&self, want: &Want) -> bool {
        let lane = self.context.lanes.get(&want.leaf);
        lane.is_some_and(|lane| lane.has_backlog() && lane.could_take(Instant::now()))
    }

    fn start(&self, lane: Arc<Lane>, call: Claimed, term: u64, claimed: BootTime) {
        let slot = Slot::take(&lane, &self.context.nudges);
        let place = lane.enter(&self.context.nudges);
        self.attempts.spawn(
            "attempt",
            attempt(
                self.context.clone(),
                lane,
                call,
                (slot, place),
                term,
                claimed,
            ),
        );
    }

    /// Claims for all leaves at once; where that meets another claim for the same key again and again, leaf
    /// by leaf and call by call, so that one row can't stop the others.
    async fn claim_together(&self, wants: &[Want], looking: Looking) -> Result<Claims, StoreError> {
        for _ in 1..CLAIM_TRIES {
            match self.claim_round(wants, looking).await {
                Err(error) if error.is_contention() => {}
                other => return other,
            }
        }
        let mut all = Claims {
            cut: true,
            ..Claims::default()
        };
        for want in wants {
            let one = Want {
                slots: 1,
                aged: want.aged.min(1),
                ..want.clone()
            };
            match self.claim_round(&[one], looking).await {
                Ok(claims) => {
                    all.put_off += claims.put_off;
                    all.due_left |= claims.due_left;
                    all.reached.extend(claims.reached);
                    all.aged.extend(claims.aged);
                    all.claimed.extend(claims.claimed);
                }
                Err(error) if error.is_contention() => self.context.failed(&error),
                Err(error) if all.claimed.is_empty() => return Err(error),
                Err(error) => {
                    self.context.failed(&error);
                    break;
                }
            }
        }
        Ok(all)
    }

    async fn claim_round(&self, wants: &[Want], looking: Looking) -> Result<Claims, StoreError> {
        let held = &self.context.held;
        let round = held.open_round();
        let claims = self
            .context
            .store
            .claim(self.context.identity.id, round, wants, looking)
            .await;
        let taken = claims
            .as_ref()
            .map(|claims| claims.claimed.iter().map(|call| call.id));
        match taken {
            Ok(taken) => held.close_round(round, taken),
            // The commit may have taken place all the same; the reclaimer gives back what it took.
            Err(_) => held.close_round(round, []),
        }
        claims
    }
}
