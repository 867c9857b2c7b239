//! G6, "nothing is lost": from everywhere there is a way to a state in which each call is final or parked, and each
//! batch has ended.
//!
//! The checker has no such property, so this walks the whole graph, and then back from its ends.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Debug,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash},
};

use crate::{
    batch,
    protocol::Protocol,
    step::{self, Step},
    world::{CALLS, State, World},
};

/// What can be walked.
pub trait Ground {
    /// Its states.
    type World: Copy + Debug + Hash;
    /// The steps from one to another.
    type Step: Copy + Debug;

    /// Where the walk begins.
    fn start(&self) -> Self::World;
    /// All steps from there.
    fn offer(&self, world: &Self::World, out: &mut Vec<Self::Step>);
    /// Takes one of them.
    fn take(&self, world: &mut Self::World, step: Self::Step);
    /// All that must come has come.
    fn is_home(&self, world: &Self::World) -> bool;
    /// A way home may lead over this step.
    fn leads_home(&self, _: Self::Step) -> bool {
        true
    }
}

/// What the walk found.
#[derive(Debug)]
pub struct Walk<W, S> {
    /// So many states.
    pub states: usize,
    /// The shortest way to a state from which there is no way home, and that state.
    pub lost: Option<(Vec<S>, W)>,
}

struct Reached<S> {
    parent: u32,
    by: Option<S>,
}

/// Walks everything that can be reached.
#[must_use]
pub fn walk<G: Ground>(ground: &G) -> Walk<G::World, G::Step> {
    let fingerprint =
        |world: &G::World| BuildHasherDefault::<DefaultHasher>::default().hash_one(world);
    let start = ground.start();
    let mut numbers = HashMap::from([(fingerprint(&start), 0_u32)]);
    let mut reached = vec![Reached {
        parent: 0,
        by: None,
    }];
    let mut home = vec![ground.is_home(&start)];
    let mut edges = Vec::new();
    let mut waiting = VecDeque::from([(0_u32, start)]);
    let mut steps = Vec::new();
    while let Some((number, world)) = waiting.pop_front() {
        ground.offer(&world, &mut steps);
        for step in steps.drain(..) {
            let mut next = world;
            ground.take(&mut next, step);
            let new = u32::try_from(reached.len()).unwrap_or(u32::MAX);
            let to = *numbers.entry(fingerprint(&next)).or_insert(new);
            if ground.leads_home(step) {
                edges.push((to, number));
            }
            if to == new {
                reached.push(Reached {
                    parent: number,
                    by: Some(step),
                });
                home.push(ground.is_home(&next));
                waiting.push_back((to, next));
            }
        }
    }
    let lost = first_lost(&mut edges, home).map(|number| way_to(ground, &reached, number));
    Walk {
        states: reached.len(),
        lost,
    }
}

impl Ground for Protocol {
    type World = World;
    type Step = Step;

    fn start(&self) -> World {
        World::new(self.budget)
    }

    fn offer(&self, world: &World, out: &mut Vec<Step>) {
        step::offer(self, world, out);
    }

    fn take(&self, world: &mut World, step: Step) {
        step::take(self, world, step);
    }

    /// Each call is final, or parked for all to see, or waits, for all to see, for one of its key that is parked.
    fn is_home(&self, world: &World) -> bool {
        let is_parked = |call: usize| world.rows[call].state == State::Parked;
        (0..CALLS).all(|call| {
            let state = world.rows[call].state;
            state.rests() || (state == State::Pending && self.others(call).any(is_parked))
        })
    }
}

impl Ground for batch::protocol::Protocol {
    type World = batch::world::World;
    type Step = batch::step::Step;

    fn start(&self) -> Self::World {
        batch::world::World::new(self)
    }

    fn offer(&self, world: &Self::World, out: &mut Vec<Self::Step>) {
        batch::step::offer(self, world, out);
    }

    fn take(&self, world: &mut Self::World, step: Self::Step) {
        batch::step::take(self, world, step);
    }

    fn is_home(&self, world: &Self::World) -> bool {
        world.is_at_its_end(self)
    }

    fn leads_home(&self, step: Self::Step) -> bool {
        !step.may_never_come()
    }
}

/// Goes back from the states that are home along all edges; the first that is not met.
fn first_lost(edges: &mut [(u32, u32)], mut home: Vec<bool>) -> Option<u32> {
    edges.sort_unstable();
    let mut waiting: Vec<u32> = (0..)
        .zip(&home)
        .filter(|(_, home)| **home)
        .map(|(number, _)| number)
        .collect();
    while let Some(to) = waiting.pop() {
        let first = edges.partition_point(|edge| edge.0 < to);
        for (_, from) in edges[first..].iter().take_while(|edge| edge.0 == to) {
            if let Some(met @ false) = home.get_mut(*from as usize) {
                *met = true;
                waiting.push(*from);
            }
        }
    }
    (0..)
        .zip(&home)
        .find(|(_, home)| !**home)
        .map(|(number, _)| number)
}

fn way_to<G: Ground>(
    ground: &G,
    reached: &[Reached<G::Step>],
    number: u32,
) -> (Vec<G::Step>, G::World) {
    let mut steps = Vec::new();
    let mut at = number;
    while let Some(Reached {
        parent,
        by: Some(step),
    }) = reached.get(at as usize)
    {
        steps.push(*step);
        at = *parent;
    }
    steps.reverse();
    let mut world = ground.start();
    for step in &steps {
        ground.take(&mut world, *step);
    }
    (steps, world)
}
