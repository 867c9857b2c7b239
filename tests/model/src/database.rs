//! PostgreSQL, as far as the protocol leans on it: READ COMMITTED, row locks, one unique index.
//!
//! A statement is several steps: it begins, which takes its snapshot; it locks rows, tests them again as they are by
//! then and writes; its transaction commits. Only a commit changes what others see.

use crate::{
    protocol::{Broken, Protocol},
    step::Step,
    world::{Alive, Attempt, CALLS, Effect, Probe, Row, State, World},
};

/// A claim's transaction: `sql/queries/claim.sql`, then `sql/queries/prior.sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Claim {
    /// Whose.
    pub instance: u8,
    /// The lease has had a gap since it began.
    pub stale: bool,
    /// Calls that the snapshot shows as due, a bit for each.
    pub found: u8,
    /// Calls of which the snapshot shows another of the key under way, in doubt or parked.
    pub busy: u8,
    /// What it marks as dispatching.
    pub taken: u8,
    /// What it holds for its key.
    pub held: u8,
    /// The standing generation of each taken call, 0 for none.
    pub prior: [u8; CALLS],
    /// The generation that each would make.
    pub generation: [u8; CALLS],
    /// Observed: an effect stood when the row was locked, and still does when it is looked for.
    pub stood: u8,
}

/// What a look at a call in doubt decided: `domain/decision.rs`, `resolve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WayOut {
    /// The leaf is asked.
    Ask,
    /// The same request again.
    Resend,
    /// A person has to say.
    Park,
}

/// What a transaction does, and what its snapshot saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// `claim.sql`, `prior.sql`
    Claim(Claim),
    /// `record_confirmed.sql`, `record_other.sql`
    Record {
        call: u8,
        instance: u8,
        attempt: Attempt,
        generation: u8,
    },
    /// `give_back.sql`
    GiveBack { call: u8, instance: u8, round: u8 },
    /// `reclaim.sql`
    Reclaim { call: u8, instance: u8, round: u8 },
    /// `answer_doubts.sql`
    Answer { call: u8 },
    /// `doubts.sql`, then `settle_doubts.sql`
    Settle {
        call: u8,
        tries: u8,
        alive: Alive,
        settled: bool,
        way_out: WayOut,
    },
    /// `record_probe.sql`
    RecordProbe { probe: Probe, generation: u8 },
    /// `leafhopper.confirm()`
    Confirm { key: u8 },
    /// `leafhopper.forget()`
    Forget { key: u8 },
}

/// How far a transaction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Phase {
    /// Its statement has its snapshot.
    #[default]
    Begun,
    /// A claim has its rows locked and tested again.
    Locked,
    /// Its rows are written.
    Written,
    /// A claim has looked for prior results.
    Looked,
}

/// An open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transaction {
    /// What it does.
    pub work: Work,
    /// The process that waits for its reply.
    pub by: Option<u8>,
    /// Nobody waits for its reply any more; it can still commit, or not.
    pub orphan: bool,
    /// How far it has come.
    pub phase: Phase,
    /// The rows that it has locked, a bit for each.
    pub locked: u8,
    /// The new version of its call's row.
    pub row: Option<Row>,
    /// The new version of its key's result.
    pub effect: Option<Effect>,
}

impl Transaction {
    fn begun(work: Work, by: Option<u8>) -> Self {
        Self {
            work,
            by,
            orphan: false,
            phase: Phase::Begun,
            locked: 0,
            row: None,
            effect: None,
        }
    }

    /// The same with the two instances, and the two processes, in each other's place.
    #[must_use]
    pub fn mirrored(self, swap: impl Fn(u8) -> u8) -> Self {
        let work = match self.work {
            Work::Claim(claim) => Work::Claim(Claim {
                instance: swap(claim.instance),
                ..claim
            }),
            Work::Record {
                call,
                instance,
                attempt,
                generation,
            } => Work::Record {
                call,
                instance: swap(instance),
                attempt,
                generation,
            },
            Work::GiveBack {
                call,
                instance,
                round,
            } => Work::GiveBack {
                call,
                instance: swap(instance),
                round,
            },
            Work::Reclaim {
                call,
                instance,
                round,
            } => Work::Reclaim {
                call,
                instance: swap(instance),
                round,
            },
            other => other,
        };
        let row = self.row.map(|row| row.mirrored(&swap));
        Self {
            work,
            row,
            by: self.by.map(|process| 1 - process),
            ..self
        }
    }

    /// The claim, if it is one.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match &self.work {
            Work::Claim(claim) => Some(claim),
            _ => None,
        }
    }

    /// The call that a statement of one call is about.
    #[must_use]
    pub fn call(&self) -> Option<usize> {
        match self.work {
            Work::Record { call, .. }
            | Work::GiveBack { call, .. }
            | Work::Reclaim { call, .. }
            | Work::Answer { call }
            | Work::Settle { call, .. }
            | Work::RecordProbe {
                probe: Probe { call, .. },
                ..
            } => Some(usize::from(call)),
            Work::Claim(_) | Work::Confirm { .. } | Work::Forget { .. } => None,
        }
    }

    /// The key whose result it has written.
    #[must_use]
    pub fn effect_of(&self, protocol: &Protocol) -> Option<usize> {
        self.effect?;
        match self.work {
            Work::Confirm { key } | Work::Forget { key } => Some(usize::from(key)),
            _ => self.call().map(|call| protocol.key(call)),
        }
    }

    /// The state that it has written for a call, if it has.
    #[must_use]
    pub fn writes(&self, call: usize) -> Option<State> {
        if self.phase < Phase::Written || !has(self.locked, call) {
            return None;
        }
        match self.work {
            Work::Claim(claim) if has(claim.taken, call) => Some(State::Dispatching),
            Work::Claim(claim) if has(claim.held, call) => Some(State::Pending),
            Work::Confirm { .. } => Some(State::Confirmed),
            _ => self.row.map(|row| row.state),
        }
    }
}

/// Whether the bit is set.
#[must_use]
pub fn has(set: u8, index: usize) -> bool {
    set & (1 << index) != 0
}

/// The calls of a set, in the order of their ids.
pub fn calls(set: u8) -> impl Iterator<Item = usize> {
    (0..CALLS).filter(move |call| has(set, *call))
}

/// The set of the calls for which something holds.
pub fn set_of(mut holds: impl FnMut(usize) -> bool) -> u8 {
    (0..CALLS)
        .filter(|call| holds(*call))
        .fold(0, |set, call| set | 1 << call)
}

/// What the unique index `dispatch_one_at_a_time` says to a new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// It may enter.
    Free,
    /// Another transaction's outcome decides.
    Wait,
    /// The key is taken.
    Violated,
}

impl World {
    /// Whether another transaction can be opened.
    #[must_use]
    pub fn has_room(&self, protocol: &Protocol) -> bool {
        self.open.iter().flatten().count() < protocol.open
    }

    /// Opens a transaction.
    pub fn begin(&mut self, work: Work, by: Option<usize>) {
        let by = by.and_then(|process| u8::try_from(process).ok());
        if let Some(slot) = self.open.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(Transaction::begun(work, by));
        }
    }

    /// Whether somebody holds the lock of the call's row.
    #[must_use]
    pub fn is_locked(&self, call: usize) -> bool {
        self.open
            .iter()
            .flatten()
            .any(|open| has(open.locked, call))
    }

    /// Whether somebody has written the key's result and not committed: an insert of the same generation waits.
    #[must_use]
    pub fn is_effect_in_work(&self, protocol: &Protocol, key: usize) -> bool {
        self.open
            .iter()
            .flatten()
            .any(|open| open.effect_of(protocol) == Some(key))
    }

    /// Asks the unique index whether a call of the transaction in `slot` may enter it.
    #[must_use]
    pub fn index(&self, protocol: &Protocol, slot: usize, call: usize) -> Index {
        if protocol.breaks(Broken::NoUniqueIndex) {
            return Index::Free;
        }
        let mut answer = Index::Free;
        for other in protocol.others(call) {
            let committed = self.rows[other].state.excludes();
            let rivals = self.open.iter().enumerate().filter(|(at, _)| *at != slot);
            let written = rivals
                .filter_map(|(_, open)| open.as_ref()?.writes(other))
                .next();
            match (committed, written) {
                (true, None) => return Index::Violated,
                (true, Some(_)) => answer = Index::Wait,
                (false, Some(state)) if state.excludes() => answer = Index::Wait,
                (false, _) => {}
            }
        }
        answer
    }

    /// Ends the transaction in `slot` without a trace.
    pub fn roll_back(&mut self, slot: usize) {
        self.open[slot] = None;
    }

    /// Brings what has no order into one: open transactions, probes, and the two processes.
    pub fn tidy(&mut self) {
        self.sort();
        let mut mirrored = self.mirrored();
        mirrored.sort();
        *self = (*self).min(mirrored);
    }

    fn sort(&mut self) {
        self.open.sort_unstable_by(|a, b| b.cmp(a));
        self.probes.sort_unstable_by(|a, b| b.cmp(a));
    }
}

/// What can happen to open transactions, whatever they do.
pub fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for (slot, open) in world.open.iter().enumerate() {
        let Some(open) = open else { continue };
        match (open.claim(), open.phase) {
            (Some(_), Phase::Begun) => out.push(Step::ClaimLocks { slot }),
            (Some(claim), Phase::Locked) => {
                crate::claim::offer_write(protocol, world, slot, claim, out)
            }
            (Some(claim), Phase::Written) if claim.taken != 0 => {
                out.push(Step::ClaimLooks { slot })
            }
            (None, Phase::Begun) if may_write(protocol, world, slot, open) => {
                out.push(Step::Writes { slot })
            }
            (_, Phase::Written | Phase::Looked) => out.push(Step::Commits { slot }),
            _ => {}
        }
        if open.orphan {
            out.push(Step::Aborts { slot });
        } else if open.by.is_some() && open.phase >= Phase::Written && world.budget.lost_replies > 0
        {
            out.push(Step::ReplyLost { slot });
        }
    }
}

/// Whether the statement gets on: it waits for nobody's row, but an insert of a result can meet another's.
fn may_write(protocol: &Protocol, world: &World, slot: usize, open: &Transaction) -> bool {
    let key = match open.work {
        // Only the app's and operators' functions wait for row locks.
        Work::Confirm { key } => {
            if protocol
                .calls_of(usize::from(key))
                .any(|call| world.is_locked(call))
            {
                return false;
            }
            usize::from(key)
        }
        Work::Forget { key } => usize::from(key),
        // Skipped where it is locked, and tried again.
        Work::Record { call, .. } if world.is_locked(usize::from(call)) => return false,
        Work::Record { call, .. } => {
            if !may_enter(protocol, world, slot, open, usize::from(call)) {
                return false;
            }
            protocol.key(usize::from(call))
        }
        _ => match open.call() {
            Some(call) => protocol.key(call),
            None => return true,
        },
    };
    !world.is_effect_in_work(protocol, key)
}

/// A late doubt of a call that is pending by now meets the unique index too; where that refuses it, it fails and is
/// recorded again.
fn may_enter(
    protocol: &Protocol,
    world: &World,
    slot: usize,
    open: &Transaction,
    call: usize,
) -> bool {
    let mut trial = *open;
    crate::record::write(protocol, world, &mut trial);
    let enters =
        trial.row.is_some_and(|row| row.state.excludes()) && !world.rows[call].state.excludes();
    // `held_calls_are_pending`: it waits for its key to be free.
    !enters || (!world.rows[call].held && world.index(protocol, slot, call) == Index::Free)
}

/// Writes what the statement in `slot` comes to, with the rows as they are by now.
pub fn write(protocol: &Protocol, world: &mut World, slot: usize) {
    let Some(mut open) = world.open[slot] else {
        return;
    };
    let changed = match open.work {
        Work::Record { .. } => crate::record::write(protocol, world, &mut open),
        Work::GiveBack { .. } | Work::Reclaim { .. } => {
            crate::sweep::write(protocol, world, &mut open)
        }
        Work::Answer { .. } | Work::Settle { .. } | Work::RecordProbe { .. } => {
            crate::doubt::write(protocol, world, &mut open)
        }
        Work::Confirm { .. } | Work::Forget { .. } => {
            crate::word::write(protocol, world, &mut open)
        }
        Work::Claim(_) => false,
    };
    open.phase = Phase::Written;
    world.open[slot] = changed.then_some(open);
}

/// Commits the transaction in `slot`.
pub fn commit(protocol: &Protocol, world: &mut World, slot: usize) {
    let Some(open) = world.open[slot].take() else {
        return;
    };
    if let (Some(key), Some(effect)) = (open.effect_of(protocol), open.effect) {
        world.effects[key] = effect;
    }
    if let (Some(call), Some(row)) = (open.call(), open.row) {
        world.rows[call] = row;
    }
    match open.work {
        Work::Claim(claim) => crate::claim::commit(world, &open, &claim),
        Work::Record { .. } => crate::record::commit(protocol, world, &open),
        Work::GiveBack { .. } | Work::Reclaim { .. } => crate::sweep::commit(world, &open),
        Work::Answer { .. } | Work::Settle { .. } | Work::RecordProbe { .. } => {
            crate::doubt::commit(world, &open)
        }
        Work::Confirm { .. } => crate::word::commit(world, &open),
        Work::Forget { .. } => {}
    }
}
