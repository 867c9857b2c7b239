//! leafhopper's protocol as a model that is searched to its ends: two instances, two calls, one leaf, and whatever can
//! happen between them, in every order.
//!
//! The tests in `tests/protocol` search worlds of this model with [stateright](https://docs.rs/stateright). A world
//! that keeps the protocol keeps the guarantees G2 to G6, numbered as in `tests/it` ([`properties`], and [`home`] for
//! "nothing is lost"). For each rule of the protocol there is a world that leaves it out ([`protocol::Broken`]), and
//! there the search must find a wrong.
//!
//! Batches are a model of their own: [`batch`], with the guarantees G7 and G8. It says itself what stands for what there,
//! and what is left out.
//!
//! # What stands for what
//!
//! | here | the protocol |
//! | --- | --- |
//! | `ClaimBegins`, `ClaimLocks`, `ClaimWrites` ([`claim`]) | `sql/queries/claim.sql`: snapshot; FOR UPDATE SKIP LOCKED and its second test of the rows; the updates, which meet `dispatch_one_at_a_time` |
//! | `ClaimLooks` | `sql/queries/prior.sql`, in the same transaction |
//! | `Checks`, `Sends`, `TimesOut` | `engine/attempt.rs`, with `may_send` as the last look at the lease (`engine/lease.rs`) |
//! | `Records`, `Writes` | `record_confirmed.sql`, `record_other.sql`; what is recorded is `decide` of `domain/decision.rs` |
//! | `Reclaims`, `GivesBack` | `reclaim.sql`, `give_back.sql`, from `engine/reclaimer.rs` |
//! | `Answers`, `Looks`, `ProbeAnswers`, `ProbeRecords` ([`doubt`]) | `answer_doubts.sql`; `doubts.sql` with `settle_doubts.sql` and `resolve`; the probe of `engine/ask.rs`; `record_probe.sql` |
//! | `Frees` | `free_keys.sql`, from `engine/promoter.rs` |
//! | `Lapses`, `Renews`, `LeaseEnds` | `engine/heartbeat.rs`, seen by the instance and by the database's clock |
//! | `Confirms`, `Forgets`, `NotExecuted` | the functions of `sql/migrations/0003_functions.sql` |
//! | `Commits`, `Aborts`, `ReplyLost` ([`database`]) | the end of a transaction; one whose process is gone or has lost the connection can still end either way, at any time |
//!
//! A statement sees other rows as in its snapshot, and its own as they are once it has locked them. So a condition that
//! is tested again after the lock is tested twice here. `LEFT JOIN` is as PostgreSQL has it then: a row that has changed
//! is tested with the partner that the snapshot joined, or with none ([`protocol::Broken::TakeoverOfAnyClaim`]).
//!
//! # What is left out
//!
//! * Time is an order of events. A lease is over for the database only after it is over for its owner, who keeps a
//!   tenth of it back. `alive_until` passes when no sender can act in time any more: each counts its limit from before
//!   the claim; only a process that is frozen between its last look and the write acts later. `settle` passes when
//!   nothing of the call can arrive any more: that is the assumption on which `settle` rests, not a result. So is that
//!   the leaf remembers a key for longer than an attempt and what of it can be late. Delays and backoffs are nothing:
//!   what is due may happen at any time.
//! * The observer's patience (`SILENT_INTERVALS`) is not modelled: whoever sees a lease that is over takes over at once,
//!   which allows more. Nor are the removal of instances' rows, `state_dir` with what it lets a successor know, limits,
//!   pauses, deadlines, `exists_on`, attempts that are used up, and `max_probes`.
//! * What a record does for those that wait for its key is left to the sweep. `Frees` and `NotExecuted` are one step.
//! * A process has one attempt of a call at a time; a second one of the same call is the other process's. Loops that act
//!   for everyone (takeover, prober) belong to nobody, and there is one of a kind for a call at a time.
//! * An answer arrives in the step that makes it; what delays it delays that step. A probe reads what is there.
//! * A person who says "not executed" is right, and has waited for `settle`. The app may `confirm()` what is not so.
//! * Nothing is pruned. What pruning takes away, no step reads any more: only the result of a key is read after its calls
//!   have ended, and where `retention.results` lets that go, it is as after a `forget()`.
//! * What the app can break by itself: `forget()` comes when no claim or attempt of its key is under way.
//!
//! The numbers of crashes, gaps in the lease, lost replies, lost or late answers, refusals and words are bounded
//! ([`world::Budget`]), and so is the number of transactions that are open at the same time: two, or three. All else
//! is bounded by these. States are told apart by a hash of 64 bits: with a million of them, the chance that two look
//! alike and one stays unseen is below one in ten million. The two instances are each other's mirror image, and only one
//! of two such states is searched.
//!
//! # What the code does otherwise
//!
//! One of the rules is kept here and not by leafhopper: see [`protocol::Broken::RefusalEndsTheDoubt`]. And where `forget()`
//! waits here until nothing of the key is alive ([`protocol::Broken::ForgetWhileAlive`]), leafhopper forgets at once, and
//! the next generation of the key waits (`result.alive_until`).

pub mod batch;
pub mod claim;
pub mod database;
pub mod doubt;
pub mod home;
mod leaf;
mod process;
pub mod properties;
pub mod protocol;
mod record;
pub mod step;
mod sweep;
mod word;
pub mod world;

use stateright::Property;

use protocol::Protocol;
use step::Step;
use world::{World, Wrong};

/// A world, for the checker.
#[derive(Debug, Clone, Copy)]
pub struct Model(pub Protocol);

impl stateright::Model for Model {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.0.budget)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        // What follows a wrong proves nothing more.
        if world.wrong == Wrong::default() {
            step::offer(&self.0, world, actions);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        step::take(&self.0, &mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}
