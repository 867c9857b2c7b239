//! Room for connections: so many in all, and no more than a part of them for one network, so that whoever opens many
//! leaves room for those who look whether this process lives.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::tries::network;

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 256;

/// Connections of one network at once; further ones are closed.
const SHARE_MAX: usize = 64;

type Shares = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// The room that there is.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    all: Arc<Semaphore>,
    shares: Shares,
}

/// A connection's place; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
    network: IpAddr,
    shares: Shares,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            shares: Shares::default(),
        }
    }
}

impl Slots {
    /// Waits until there is room for one more. `None`: never, since nothing closes the semaphore.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).acquire_owned().await.ok()
    }

    /// A place for a connection from there; `None` where its network has its share.
    pub(super) fn take(&self, permit: OwnedSemaphorePermit, peer: IpAddr) -> Option<Slot> {
        let network = network(peer);
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(network).or_default();
        if *share >= SHARE_MAX {
            return None;
        }
        *share += 1;
        drop(shares);
        Some(Slot {
            _permit: permit,
            network,
            shares: Arc::clone(&self.shares),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get_mut(&self.network) {
            *share -= 1;
            if *share == 0 {
                shares.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_network_has_its_share_and_no_more_until_it_gives_some_back() {
        let slots = Slots::default();
        let take = async |peer: &str| {
            let permit = slots.room().await.expect("room");
            slots.take(permit, peer.parse().expect("an address"))
        };
        let mut held = Vec::new();
        for _ in 0..SHARE_MAX {
            held.push(take("2001:db8::1").await.expect("room"));
        }
        assert!(take("2001:db8::2").await.is_none(), "the same network");
        for peer in ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8:1::1"] {
            assert!(take(peer).await.is_some(), "{peer}");
        }
        held.pop();
        assert!(take("2001:db8::2").await.is_some());
        held.clear();
        assert!(slots.shares.lock().expect("not poisoned").is_empty());
    }
}
