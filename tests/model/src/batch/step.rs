//! Everything that can happen to a batch, one thing at a time.

use super::{app, call, look, protocol::Protocol, rows::Kind, world::World};

/// One step of a batch's world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The app's transaction with the call's insert commits.
    Inserts { call: usize },
    /// A variant's claim looks at the batch.
    ClaimLooks { call: usize },
    /// A claim takes the snapshot that shows the call.
    ClaimBegins { call: usize },
    /// A variant's claim locks the call and waits for the batch's row.
    ClaimWaits { call: usize },
    /// A claim locks the call, tests it again, writes and commits.
    ClaimCommits { call: usize },
    /// A claim ends without a trace.
    ClaimAborts { call: usize },
    /// The leaf executes the request and its answer arrives.
    Executes { call: usize },
    /// The leaf says no.
    Refuses { call: usize },
    /// The process dies that has the attempt.
    Dies { call: usize },
    /// A confirmation is recorded.
    Records { call: usize },
    /// The transaction takes its snapshot that ends the call, or resolves its doubt.
    EndBegins { call: usize, kind: Kind },
    /// It locks the call, tests it again, writes and commits.
    EndCommits { call: usize },
    /// It ends without a trace.
    EndAborts { call: usize },
    /// A claim becomes a doubt, since its lease is over.
    TakesOver { call: usize },
    /// A doubt waits for somebody's word.
    Parks { call: usize },
    /// A probe or a person finds that it was executed.
    Adopts { call: usize },
    /// A waiting call of a batch that is decided is cancelled.
    Sweeps { call: usize },
    /// A request arrives, and nobody hears the answer.
    Lands { call: usize },
    /// A request arrives, and its answer is heard after all.
    LandsHeard { call: usize },
    /// A request is lost.
    Vanishes { call: usize },
    /// A late answer is recorded.
    RecordsLate { call: usize },
    /// The app calls `confirm()`, which locks the call.
    WordBegins { call: usize },
    /// The app commits.
    WordCommits { call: usize },
    /// The app rolls back.
    WordAborts { call: usize },
    /// The app calls `seal()`.
    Seals,
    /// The app calls `forget()`.
    Forgets { call: usize },
    /// A call of another batch makes the effect again.
    Redoes { call: usize },
    /// A person has a failed compensation sent again.
    Retries { call: usize },
    /// A look reads the marks and locks the batch's row.
    LookBegins,
    /// A variant's look finds the row locked, and ends with more than that.
    LookIsSkipped,
    /// Its second statement decides.
    LookDecides { look: usize },
    /// It commits.
    LookCommits { look: usize },
    /// It ends without a trace.
    LookAborts { look: usize },
    /// The app calls `cancel_batch()`.
    CancelBegins,
    /// The app commits.
    CancelCommits,
    /// The app rolls back.
    CancelAborts,
}

impl Step {
    /// It may never happen: a fault, or what the app does. No way to an end may need it.
    #[must_use]
    pub fn may_never_come(self) -> bool {
        matches!(
            self,
            Self::Inserts { .. }
                | Self::Refuses { .. }
                | Self::Dies { .. }
                | Self::EndBegins {
                    kind: Kind::Expired,
                    ..
                }
                | Self::LandsHeard { .. }
                | Self::CancelBegins
                | Self::WordBegins { .. }
                | Self::Seals
                | Self::Forgets { .. }
                | Self::Redoes { .. }
        )
    }

    /// It needs the lock of the call's row, and does not wait for it.
    pub(crate) fn skips_locked(self) -> bool {
        matches!(
            self,
            Self::ClaimWaits { .. }
                | Self::ClaimCommits { .. }
                | Self::Records { .. }
                | Self::EndCommits { .. }
                | Self::TakesOver { .. }
                | Self::Parks { .. }
                | Self::Adopts { .. }
                | Self::Sweeps { .. }
                | Self::RecordsLate { .. }
        )
    }
}

/// All steps that the world can take.
pub(crate) fn offer(protocol: &Protocol, world: &World, out: &mut Vec<Step>) {
    for place in 0..world.calls.len() {
        call::offer(protocol, world, place, out);
    }
    look::offer(protocol, world, out);
    app::offer(protocol, world, out);
}

/// Takes one of them.
pub(crate) fn take(protocol: &Protocol, world: &mut World, step: Step) {
    world.news = None;
    match step {
        Step::LookBegins => look::begin(protocol, world),
        Step::LookIsSkipped => world.marks = 0,
        Step::LookDecides { look } => look::decide(protocol, world, look),
        Step::LookCommits { look } => look::commit(protocol, world, look),
        Step::LookAborts { look } => look::abort(world, look),
        Step::Inserts { .. }
        | Step::CancelBegins
        | Step::CancelCommits
        | Step::CancelAborts
        | Step::WordBegins { .. }
        | Step::WordCommits { .. }
        | Step::WordAborts { .. }
        | Step::Seals
        | Step::Forgets { .. }
        | Step::Redoes { .. }
        | Step::Retries { .. } => app::take(protocol, world, step),
        of_a_call => call::take(protocol, world, of_a_call),
    }
    world.tidy(protocol);
}
