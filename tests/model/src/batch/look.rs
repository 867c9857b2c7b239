//! A batcher's look: it reads the marks, locks the batch's row, and decides by a snapshot that is younger than the lock.

use super::{
    protocol::{Broken, Protocol, Role},
    rows::{Batch, State},
    step::Step,
    world::{CALLS, Look, News, PLACES, Set, Snapshot, Verdict, World, places, set_of},
};

pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    let one_statement = protocol.looks_in_one_statement();
    let has_row = world.batch != Batch::Absent;
    let is_locked = world.is_locked_by_a_look() || (has_row && world.cancel.is_some());
    if world.marks != 0 {
        let is_free = world.looks.contains(&None) && world.has_room(protocol);
        if is_free && (one_statement || !is_locked) {
            out.push(Step::LookBegins);
        } else if is_locked && protocol.breaks(Broken::MarksDeletedWhereSkipped) {
            out.push(Step::LookIsSkipped);
        }
    }
    for (look, open) in world.looks.iter().enumerate() {
        match open {
            None => continue,
            Some(Look::Begun { .. }) if one_statement && is_locked => {}
            Some(Look::Begun { .. }) => out.push(Step::LookDecides { look }),
            // Its insert of the row waits for the other one.
            Some(Look::Decided {
                locked: false,
                verdict: Verdict { to: Some(_), .. },
            }) if world.cancel.is_some() => {}
            Some(Look::Decided { verdict, .. })
                if protocol.breaks(Broken::LookWaitsForEnds)
                    && verdict.clear & world.locked_ends() != 0 => {}
            Some(Look::Decided { .. }) => out.push(Step::LookCommits { look }),
        }
        out.push(Step::LookAborts { look });
    }
}

pub(crate) fn begin(protocol: &Protocol, world: &mut World) {
    let Some(look) = world.looks.iter().position(Option::is_none) else {
        return;
    };
    world.read_marks(look);
    let one_statement = protocol.looks_in_one_statement();
    world.looks[look] = Some(Look::Begun {
        locked: !one_statement && world.batch != Batch::Absent,
        seen: one_statement.then(|| world.snapshot()),
    });
}

pub(crate) fn decide(protocol: &Protocol, world: &mut World, look: usize) {
    let Some(Look::Begun { locked, seen }) = world.looks[look] else {
        return;
    };
    let batch = world.batch;
    let snapshot = seen.unwrap_or_else(|| world.snapshot());
    let locked = locked || (seen.is_some() && batch != Batch::Absent);
    let moved = protocol.breaks(Broken::LookGuardedByItsState) && snapshot.batch != batch;
    // A row that it has not locked is another one's.
    let verdict = if moved || (!locked && batch != Batch::Absent) {
        Verdict::default()
    } else {
        judge(protocol, &snapshot, batch)
    };
    world.looks[look] = Some(Look::Decided { locked, verdict });
}

/// What follows from the rows alone.
fn judge(protocol: &Protocol, seen: &Snapshot, batch: Batch) -> Verdict {
    let fails = seen.announces != 0;
    let live = has_live(protocol, seen);
    let calls = || protocol.waited_for().map(|call| seen.states[call]);
    let any = calls().any(|state| state != State::Unseen);
    let standing = protocol
        .undoable()
        .filter(|call| seen.states[*call] == State::Confirmed)
        .fold(0, |set: Set, call| set | 1 << call);
    let undoes = seen.states[CALLS..].iter().any(|undo| undo.is_live());
    let to = match batch {
        Batch::Absent | Batch::Open if fails => Some(Batch::Cancelling),
        Batch::Absent | Batch::Open if any && !live && seen.sealed => {
            Some(if protocol.breaks(Broken::SuccessInOneStep) {
                Batch::Succeeded
            } else {
                Batch::Closing
            })
        }
        Batch::Closing if fails => Some(Batch::Cancelling),
        Batch::Closing if live => Some(Batch::Open),
        Batch::Closing => Some(Batch::Succeeded),
        Batch::Cancelling if !live => Some(Batch::Compensating),
        Batch::Compensating if standing == 0 && !undoes => Some(Batch::Cancelled),
        Batch::Cancelled if standing != 0 && !protocol.breaks(Broken::TeardownEndsForGood) => {
            Some(Batch::Compensating)
        }
        _ => None,
    };
    let (release, drop) = match (batch, to) {
        (Batch::Succeeded | Batch::Cancelled, None) => follow_ups(protocol, seen, batch),
        _ => (0, 0),
    };
    let decided = !batch.is_undecided() || to == Some(Batch::Cancelling);
    let stays = protocol.breaks(Broken::LateAnnouncementStays) && to != Some(Batch::Cancelling);
    Verdict {
        to,
        undo: if batch == Batch::Compensating {
            next_undo(seen, standing)
        } else {
            0
        },
        release,
        drop,
        clear: if decided && !stays { seen.announces } else { 0 },
        rash: to == Some(Batch::Succeeded) && calls().any(State::has_failed),
    }
}

fn has_live(protocol: &Protocol, seen: &Snapshot) -> bool {
    if protocol.breaks(Broken::CountedLiveCalls) {
        return seen.count > 0;
    }
    protocol.waited_for().any(|call| match seen.states[call] {
        State::InDoubt => !protocol.breaks(Broken::DoubtsDoNotHold),
        State::Parked => !protocol.breaks(Broken::ParkedDoNotHold),
        state => state.is_live(),
    })
}

/// One after the other; one that has failed holds the others.
fn next_undo(seen: &Snapshot, standing: Set) -> Set {
    let undos = &seen.states[CALLS..];
    if undos.iter().any(|undo| undo.is_live() || undo.has_failed()) {
        return 0;
    }
    places(standing)
        .filter(|call| undos[*call] == State::Unseen)
        .last()
        .map_or(0, |call| 1 << (CALLS + call))
}

/// What is let go, phase by phase, and what can't run any more.
fn follow_ups(protocol: &Protocol, seen: &Snapshot, batch: Batch) -> (Set, Set) {
    let (now, never) = if batch == Batch::Succeeded {
        (Role::WhenSucceeded, Role::WhenFailed)
    } else {
        (Role::WhenFailed, Role::WhenSucceeded)
    };
    let waits = |role: Role| {
        set_of(|place| {
            protocol.role(place) == role
                && seen.states[place] == State::Pending
                && seen.held & (1 << place) != 0
        })
    };
    let first_is_over = (0..PLACES)
        .filter(|place| protocol.role(*place) == now)
        .all(|place| !seen.states[place].is_live());
    let last = if first_is_over {
        waits(Role::WhenSettled)
    } else {
        0
    };
    (waits(now) | last, waits(never))
}

pub(crate) fn commit(protocol: &Protocol, world: &mut World, look: usize) {
    let Some(Look::Decided {
        locked,
        mut verdict,
    }) = world.looks[look]
    else {
        return;
    };
    if !locked && world.batch != Batch::Absent {
        // ON CONFLICT DO NOTHING: that one's commit has left a mark.
        world.news = Some(News::RowWasThere);
        verdict = Verdict::default();
    }
    // Those that somebody has locked are left to the next look.
    let locked_ends = verdict.clear & world.locked_ends();
    for call in places(verdict.clear & !locked_ends) {
        world.calls[call].announces = false;
    }
    if protocol.breaks(Broken::AnnouncementMovesInTwo) && verdict.clear != 0 {
        let verdict = Verdict {
            clear: 0,
            ..verdict
        };
        world.looks[look] = Some(Look::Decided { locked, verdict });
        return;
    }
    world.looks[look] = None;
    if locked_ends == 0 {
        world.delete_marks(look);
    } else {
        world.forget_marks(look);
    }
    if protocol.breaks(Broken::UnreadMarksDeleted) {
        world.marks = 0;
    }
    apply(protocol, world, &verdict);
}

fn apply(protocol: &Protocol, world: &mut World, verdict: &Verdict) {
    if let Some(to) = verdict.to {
        world.news = match (world.batch, to) {
            (Batch::Closing, Batch::Open) => Some(News::Reopened),
            (Batch::Cancelled, Batch::Compensating) => Some(News::TornDownAgain),
            _ => None,
        };
        world.wrong.succeeded_over_a_failure |= verdict.rash;
        world.move_to(to);
    }
    for undo in places(verdict.undo) {
        let is_new = world.calls[undo].state == State::Unseen;
        if is_new || protocol.breaks(Broken::UndoneTwice) {
            world.calls[undo - CALLS].undos += 1;
        }
        if is_new {
            world.insert(protocol, undo);
        }
    }
    for call in places(verdict.release) {
        world.calls[call].held = false;
    }
    for call in places(verdict.drop) {
        world.calls[call].held = false;
        world.calls[call].state = State::Cancelled;
        world.mark();
    }
}

pub(crate) fn abort(world: &mut World, look: usize) {
    world.looks[look] = None;
    world.forget_marks(look);
}

impl World {
    fn snapshot(&self) -> Snapshot {
        let mut states = [State::Unseen; PLACES];
        for (state, call) in states.iter_mut().zip(&self.calls) {
            *state = call.state;
        }
        Snapshot {
            batch: self.batch,
            sealed: self.sealed,
            states,
            held: set_of(|place| self.calls[place].held),
            announces: set_of(|place| self.calls[place].announces),
            count: self.count,
        }
    }

    /// All marks that there are have now been read by that look.
    fn read_marks(&mut self, look: usize) {
        self.marks = if look == 0 {
            (self.marks & 0b1010) | (self.marks & 0b0101) << 1
        } else {
            (self.marks & 0b1100) | (self.marks & 0b0011) << 2
        };
    }

    /// Nobody knows any more that it has read them.
    fn forget_marks(&mut self, look: usize) {
        self.marks = if look == 0 {
            (self.marks & 0b0101) | (self.marks & 0b1010) >> 1
        } else {
            (self.marks & 0b0011) | (self.marks & 0b1100) >> 2
        };
    }

    /// What that look has read is gone.
    fn delete_marks(&mut self, look: usize) {
        self.marks &= if look == 0 { 0b0101 } else { 0b0011 };
    }
}
