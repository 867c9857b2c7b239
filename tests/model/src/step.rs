//! Everything that can happen, one thing at a time.

use crate::{
    claim, database, doubt, leaf, process,
    protocol::Protocol,
    record, sweep, word,
    world::{Outcome, State, World},
};

/// One step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The app's transaction with the call's insert commits.
    Inserts { call: usize },
    /// A claim's first statement takes its snapshot.
    ClaimBegins { process: usize },
    /// It locks what it found and tests it again.
    ClaimLocks { slot: usize },
    /// It writes.
    ClaimWrites { slot: usize },
    /// Its second statement looks for prior results.
    ClaimLooks { slot: usize },
    /// A statement of another kind locks, tests again and writes.
    Writes { slot: usize },
    /// A transaction commits, and whoever waits for it learns that.
    Commits { slot: usize },
    /// A transaction ends without a trace.
    Aborts { slot: usize },
    /// Nobody will learn whether it commits.
    ReplyLost { slot: usize },
    /// The record of an attempt begins.
    Records { process: usize, call: usize },
    /// The takeover of a claim whose lease is over begins.
    Reclaims { call: usize },
    /// The return of a claim whose reply was lost begins.
    GivesBack { process: usize, call: usize },
    /// A call that is held for a key that nobody holds is free.
    Frees { call: usize },
    /// The end of a doubt whose effect stands begins.
    Answers { call: usize },
    /// The prober looks at a doubt and begins to write what follows.
    Looks { call: usize },
    /// The time that a probe may take is over.
    AsksAgain { call: usize },
    /// The leaf answers a probe.
    ProbeAnswers { slot: usize },
    /// A probe is lost, with its process or by itself.
    ProbeDies { slot: usize },
    /// The record of a probe begins.
    ProbeRecords { slot: usize },
    /// The last look at the lease before the send.
    Checks { process: usize, call: usize },
    /// The request is written.
    Sends { process: usize, call: usize },
    /// The sender gives up.
    TimesOut { process: usize, call: usize },
    /// A process dies, and another starts in its place.
    Crashes { process: usize },
    /// A process's lease runs out for itself.
    Lapses { process: usize },
    /// It is renewed.
    Renews { process: usize },
    /// A lease is over for the database's clock.
    LeaseEnds { instance: u8 },
    /// A call's `alive_until` passes.
    AttemptIsOver { call: usize },
    /// Its `settle` passes.
    Settles { call: usize },
    /// The leaf forgets the idempotency key of an effect key.
    WindowEnds { key: usize },
    /// The leaf executes a request and its answer arrives.
    Executes { call: usize, round: usize },
    /// The leaf executes a request and its answer is lost.
    ExecutesAndDrops { call: usize, round: usize },
    /// The leaf says no.
    Refuses { call: usize, round: usize },
    /// The leaf says that it did nothing, or the connection was refused.
    DoesNothing { call: usize, round: usize },
    /// A request is lost.
    Vanishes { call: usize, round: usize },
    /// The app calls `confirm()`.
    Confirms { key: usize },
    /// The app calls `forget()`, which has found nothing in its way.
    Forgets { key: usize },
    /// A person says that a parked call was not executed.
    NotExecuted { call: usize },
}

/// All steps that the world can take.
pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for (call, row) in world.rows.iter().enumerate() {
        if row.state == State::Unseen {
            out.push(Step::Inserts { call });
        }
    }
    claim::offer(protocol, world, out);
    database::offer(protocol, world, out);
    record::offer(protocol, world, out);
    sweep::offer(protocol, world, out);
    doubt::offer(protocol, world, out);
    word::offer(protocol, world, out);
    process::offer(protocol, world, out);
    leaf::offer(protocol, world, out);
}

/// Takes one of them.
pub(crate) fn take(protocol: &Protocol, world: &mut World, step: Step) {
    world.news = None;
    match step {
        Step::Inserts { call } => world.rows[call].state = State::Pending,
        Step::Commits { .. }
        | Step::Aborts { .. }
        | Step::ReplyLost { .. }
        | Step::Writes { .. } => {
            take_database(protocol, world, step);
        }
        Step::ClaimBegins { process } => claim::begin(protocol, world, process),
        Step::ClaimLocks { slot } => claim::lock(protocol, world, slot),
        Step::ClaimWrites { slot } => claim::write(protocol, world, slot),
        Step::ClaimLooks { slot } => claim::look_for_priors(protocol, world, slot),
        Step::Records { process, call } => record::begin(protocol, world, process, call),
        Step::Reclaims { call } => sweep::begin_reclaim(world, call),
        Step::GivesBack { process, call } => sweep::begin_give_back(world, process, call),
        Step::Frees { call } => sweep::free(world, call),
        Step::Answers { call } => doubt::begin_answer(world, call),
        Step::Looks { call } => doubt::begin_look(protocol, world, call),
        Step::AsksAgain { call } => world.rows[call].asked = false,
        Step::ProbeAnswers { slot } => doubt::answer(protocol, world, slot),
        Step::ProbeDies { slot } => world.probes[slot] = None,
        Step::ProbeRecords { slot } => doubt::begin_record(protocol, world, slot),
        Step::Checks { process, call } => process::check(protocol, world, process, call),
        Step::Sends { process, call } => process::send(protocol, world, process, call),
        Step::TimesOut { process, call } => process::time_out(world, process, call),
        Step::Crashes { process } => process::crash(world, process),
        Step::Lapses { process } => process::lapse(world, process),
        Step::Renews { process } => process::renew(world, process),
        Step::Confirms { key } => word::begin_confirm(world, key),
        Step::Forgets { key } => word::begin_forget(world, key),
        Step::NotExecuted { call } => word::not_executed(world, call),
        other => take_outside(protocol, world, other),
    }
    world.tidy();
}

fn take_database(protocol: &Protocol, world: &mut World, step: Step) {
    match step {
        Step::Writes { slot } => database::write(protocol, world, slot),
        Step::Commits { slot } => database::commit(protocol, world, slot),
        Step::Aborts { slot } => world.roll_back(slot),
        Step::ReplyLost { slot } => {
            world.budget.lost_replies -= 1;
            if let Some(open) = &mut world.open[slot] {
                open.by = None;
                open.orphan = true;
            }
        }
        _ => {}
    }
}

/// Time, the network and the leaf.
fn take_outside(protocol: &Protocol, world: &mut World, step: Step) {
    use crate::world::Clock;
    match step {
        Step::LeaseEnds { instance } => world.leases &= !(1 << instance),
        Step::AttemptIsOver { call } => world.clocks[call] = Clock::Over,
        Step::Settles { call } => world.clocks[call] = Clock::Settled,
        Step::WindowEnds { key } => world.windows_over[key] = true,
        Step::Executes { call, round } => {
            leaf::execute(protocol, world, call, round);
            leaf::answer(world, call, round, Outcome::Confirmed);
        }
        Step::ExecutesAndDrops { call, round } => {
            world.budget.lost_answers -= 1;
            leaf::execute(protocol, world, call, round);
        }
        Step::Refuses { call, round } => {
            world.budget.refusals -= 1;
            leaf::answer(world, call, round, Outcome::Refused);
        }
        Step::DoesNothing { call, round } => {
            world.budget.refusals -= 1;
            leaf::answer(world, call, round, Outcome::NotExecuted);
        }
        Step::Vanishes { call, round } => leaf::vanish(world, call, round),
        _ => {}
    }
}
