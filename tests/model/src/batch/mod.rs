//! A batch as a model of its own: up to three calls with their compensations and follow-ups, and whatever can happen to
//! them, in every order.
//!
//! A world that keeps the protocol keeps G7 and G8, and comes to its end from everywhere ([`properties`], and
//! [`crate::home`]). For each rule there is a world that leaves it out ([`protocol::Broken`]).
//!
//! # What stands for what
//!
//! | here | the protocol |
//! | --- | --- |
//! | [`rows::Batch`] | `leafhopper.batch.state`; `Absent` is a batch without a row |
//! | [`rows::State`] | a row of `dispatch`, `finished` or `result`; `Undone` is a result with `undone_at` |
//! | [`rows::Call::announces`] | `finished.fails_batch`: the announcement of a failure, until the batch's row says so |
//! | [`world::World::marks`] | the rows of `batch_mark`: with each insert, each end, each change of a batch's state and each seal |
//! | `ClaimBegins`, `ClaimCommits` ([`call`]) | the claim: its snapshot, with the batch's row and announcements in it; the lock, the second test of the row, and the commit |
//! | `EndBegins`, `EndCommits` | what ends a call without a result: its snapshot says whether it cancels the batch, or whether a doubt is sent again |
//! | `Executes`, `Refuses`, `Records`, `Dies`, `TakesOver` | an attempt, its record, the death of its process and the takeover |
//! | `Adopts`, `Parks` | a doubt that is resolved by a probe or a person; of a compensation the other way round |
//! | `Lands`, `LandsHeard`, `RecordsLate` | a request whose sender has given up, or is taken for dead, and its late answer |
//! | `Sweeps` | waiting calls of a cancelled or ended batch become cancelled |
//! | `LookBegins`, `LookDecides`, `LookCommits` ([`look`]) | a batcher's look: the marks are read, the row is locked (SKIP LOCKED); a second statement decides; the commit, which deletes the marks that were read |
//! | `CancelBegins`, `CancelCommits`, `WordBegins`, `WordCommits` ([`app`]) | the app's transactions with `cancel_batch()` and `confirm()`, with their locks |
//!
//! A transaction is its snapshot and its commit. From its lock of a call's row to its commit nobody can change that row,
//! and whoever meets the lock goes on without the row; so nothing is lost where both are one step. Only the locks that
//! somebody waits for are seen: those of the batch's row, and of the row that a word has.
//!
//! # What is left out
//!
//! * Which instance does what: nothing here asks for it. So any number of them run, and each attempt and transaction may
//!   be in a process of its own that dies at any moment: its transaction commits or does not. What is bounded is how many
//!   attempts are lost ([`world::Budget`]; in some worlds any number), how many transactions are open at the same time,
//!   and looks under way: two. A claim takes one call; claims of several are several with one snapshot.
//! * Keys: each call has its own. What another batch does to it is one step (`Redoes`), which the compensation excludes
//!   while it is under way. That calls of a key exclude each other, and that a record or a takeover names its claim, is
//!   the other model's.
//! * `Forgets` is one step too, and whoever forgets an effect is right.
//! * An effect is there or not; that it is not made twice is the other model's, too.
//! * A request that is believed to be lost and then lands (`late`) breaks the assumption on which `settle` rests. Its
//!   answer is heard then, and it does not land once its call has a result.
//! * `allow_failures`, weak adoptions, `waive`, the order of compensations and the removal of old rows.
//! * A look at several batches in one transaction. They share nothing but the wait for another one's insert.
//!
//! # What is easily missed
//!
//! [`protocol::Broken`] names each rule. These do not follow from "announce, commit, look" alone:
//! [`protocol::Broken::UndoneWhileAlive`], [`protocol::Broken::EndedWhileClosing`],
//! [`protocol::Broken::ClosingCountsAsOver`], [`protocol::Broken::LateAnnouncementStays`],
//! [`protocol::Broken::SweptWhileCancelling`], [`protocol::Broken::LookWaitsForEnds`],
//! [`protocol::Broken::SealedWithoutMark`], [`protocol::Broken::UndoneUnasked`] and [`protocol::Broken::RedoneWhileAlive`].

pub mod app;
pub mod call;
pub mod look;
pub mod properties;
pub mod protocol;
pub mod rows;
pub mod step;
pub mod world;

use stateright::Property;

use protocol::Protocol;
use step::Step;
use world::{World, Wrong};

/// A batch's world, for the checker.
#[derive(Debug, Clone, Copy)]
pub struct Model(pub Protocol);

impl stateright::Model for Model {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
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
