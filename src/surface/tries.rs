//! Counts wrong tokens, so that nobody can try many.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// So many wrong tokens from one place within a [`WINDOW`] are answered.
const TRIES_MAX: u32 = 10;

/// How long a place has to wait after that.
const WINDOW: Duration = Duration::from_mins(1);

/// So many places are remembered; where there are more, those that are not wait together.
const PLACES_MAX: usize = 4096;

/// What stands for them. No connection comes from there.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Wrong tokens by where they came from.
#[derive(Debug, Default)]
pub(super) struct Tries {
    places: Mutex<HashMap<IpAddr, Place>>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    since: Instant,
    failed: u32,
}

impl Tries {
    /// How long nothing from there is looked at; `None` where it is.
    pub(super) fn wait(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.get(&network(peer)).or_else(|| places.get(&OTHERS))?;
        let over = place.since + WINDOW;
        (place.failed >= TRIES_MAX)
            .then(|| over.saturating_duration_since(now))
            .filter(|wait| !wait.is_zero())
    }

    /// A wrong token came from there. Gives whether it is the first one within a [`WINDOW`].
    pub(super) fn failed(&self, peer: IpAddr, now: Instant) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= PLACES_MAX {
            places.retain(|_, place| place.since + WINDOW > now);
        }
        let full = places.len() >= PLACES_MAX;
        let network = network(peer);
        let place = if full && !places.contains_key(&network) {
            OTHERS
        } else {
            network
        };
        let place = places.entry(place).or_insert(Place {
            since: now,
            failed: 0,
        });
        if place.since + WINDOW <= now {
            *place = Place {
                since: now,
                failed: 0,
            };
        }
        place.failed = place.failed.saturating_add(1);
        place.failed == 1
    }
}

/// One place: an IPv4 address, or the /64 that a subscriber has of IPv6 (RFC 6177).
pub(super) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_wrong_too_often_waits_for_a_minute() {
        let tries = Tries::default();
        let now = Instant::now();
        let peer: IpAddr = "2001:db8::7".parse().expect("an address");
        let neighbour: IpAddr = "2001:db8::8".parse().expect("an address");
        let other: IpAddr = "2001:db8:1::7".parse().expect("an address");
        for _ in 0..TRIES_MAX {
            assert_eq!(tries.wait(peer, now), None);
            tries.failed(peer, now);
        }
        assert!(tries.wait(peer, now).is_some());
        assert!(tries.wait(neighbour, now).is_some());
        assert_eq!(tries.wait(other, now), None);
        let later = now + WINDOW;
        assert_eq!(tries.wait(peer, later), None);
        tries.failed(peer, later);
        assert_eq!(tries.wait(peer, later), None);
    }

    #[test]
    fn many_places_take_bounded_room_and_the_last_of_them_wait_too() {
        let tries = Tries::default();
        let now = Instant::now();
        let place = |n: u32| IpAddr::V4(n.into());
        for n in 1..20_000 {
            tries.failed(place(n), now);
        }
        assert!(tries.wait(place(20_000), now).is_some());
        assert_eq!(tries.wait(place(1), now), None, "it was wrong once");
        let later = now + WINDOW;
        assert_eq!(tries.wait(place(20_000), later), None);
        let places = tries.places.lock().expect("not poisoned");
        assert!(places.len() <= PLACES_MAX + 1, "{}", places.len());
    }
}
