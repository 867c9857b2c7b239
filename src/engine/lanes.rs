//! All lanes, by the names of their leaves.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use super::lane::{Lane, Settings};
use crate::{
    config::Config,
    leaf::{LeafClient, LeafClientError, Memory},
    metrics::UNKNOWN,
};

/// The lanes by name. A reload replaces settings, adds lanes, and takes away those that are gone; what is
/// under way in one that is gone still ends.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: RwLock<BTreeMap<String, Arc<Lane>>>,
    /// Of leaves that are gone from the configuration: their requests count until they have ended.
    leaving: Mutex<BTreeMap<String, Arc<Lane>>>,
}

impl Lanes {
    /// Takes over the leaves of a configuration; all of them or, on an error, none.
    pub(crate) fn configure(&self, config: &Config) -> Result<(), LeafClientError> {
        let mut clients = BTreeMap::new();
        for (name, leaf) in &config.leaves {
            let mut settings = Settings {
                leaf: Arc::clone(leaf),
                client: LeafClient::new(leaf)?,
                bodies: Memory::new(leaf.body_memory),
            };
            let before = self.get(name).map(|lane| lane.settings());
            if let Some(before) = before.filter(|it| it.leaf.body_memory == leaf.body_memory) {
                // What is under way holds a part of it.
                settings.bodies = before.bodies.clone();
                settings.client.share_memory(&before.client);
            }
            clients.insert(name.clone(), settings);
        }
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = lanes.extract_if(.., |name, _| !clients.contains_key(name));
        for (name, lane) in gone {
            // Who waits for a place gets none any more: it is for the instances that know the leaf.
            lane.set_share(0, None);
            leaving.insert(name, lane);
        }
        for (name, settings) in clients {
            if let Some(lane) = lanes.get(&name) {
                lane.set_settings(settings);
            } else if let Some(lane) = leaving.remove(&name) {
                lane.set_settings(settings);
                lanes.insert(name, lane);
            } else {
                lanes.insert(name.clone(), Arc::new(Lane::new(name, settings)));
            }
        }
        Ok(())
    }

    /// The leaves that are gone from the configuration, and to which requests are under way.
    pub(crate) fn leaving(&self) -> Vec<String> {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|_, lane| lane.in_flight() > 0);
        leaving.keys().cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Lane>> {
        self.lanes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Lane>> {
        self.lanes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lanes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .cloned()
            .collect()
    }

    /// The leaf as metrics and logs name it: what rows name and no configuration does is no label.
    pub(crate) fn label<'name>(&self, name: &'name str) -> &'name str {
        match self.get(name) {
            Some(_) => name,
            None => UNKNOWN,
        }
    }
}
