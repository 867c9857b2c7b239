//! G6, "nothing is lost": from everywhere there is a way to a state in which each call is final or parked.
//!
//! The checker has no such property, so this walks the whole graph, and then back from its ends.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

use crate::{
    protocol::Protocol,
    step::{self, Step},
    world::{CALLS, State, World},
};

/// What the walk found.
#[derive(Debug)]
pub struct Walk {
    /// So many states.
    pub states: usize,
    /// The shortest way to a state from which there is no way home, and that state.
    pub lost: Option<(Vec<Step>, World)>,
}

struct Reached {
    parent: u32,
    by: Option<Step>,
}

/// Walks everything that can be reached.
#[must_use]
pub fn walk(protocol: &Protocol) -> Walk {
    let fingerprint =
        |world: &World| BuildHasherDefault::<DefaultHasher>::default().hash_one(world);
    let start = World::new(protocol.budget);
    let mut numbers = HashMap::from([(fingerprint(&start), 0_u32)]);
    let mut reached = vec![Reached {
        parent: 0,
        by: None,
    }];
    let mut home = vec![is_home(protocol, &start)];
    let mut edges = Vec::new();
    let mut waiting = VecDeque::from([(0_u32, start)]);
    let mut steps = Vec::new();
    while let Some((number, world)) = waiting.pop_front() {
        step::offer(protocol, &world, &mut steps);
        for step in steps.drain(..) {
            let mut next = world;
            step::take(protocol, &mut next, step);
            let new = u32::try_from(reached.len()).unwrap_or(u32::MAX);
            let to = *numbers.entry(fingerprint(&next)).or_insert(new);
            edges.push((to, number));
            if to == new {
                reached.push(Reached {
                    parent: number,
                    by: Some(step),
                });
                home.push(is_home(protocol, &next));
                waiting.push_back((to, next));
            }
        }
    }
    let lost = first_lost(&mut edges, home).map(|number| way_to(protocol, &reached, number));
    Walk {
        states: reached.len(),
        lost,
    }
}

/// Each call is final, or parked for all to see, or waits, for all to see, for one of its key that is parked.
fn is_home(protocol: &Protocol, world: &World) -> bool {
    let is_parked = |call: usize| world.rows[call].state == State::Parked;
    (0..CALLS).all(|call| {
        let state = world.rows[call].state;
        state.rests() || (state == State::Pending && protocol.others(call).any(is_parked))
    })
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

fn way_to(protocol: &Protocol, reached: &[Reached], number: u32) -> (Vec<Step>, World) {
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
    let mut world = World::new(protocol.budget);
    for step in &steps {
        step::take(protocol, &mut world, *step);
    }
    (steps, world)
}
