//! leafhopper's protocol as a model.

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
