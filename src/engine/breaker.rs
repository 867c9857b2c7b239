//! Keeps calls from a leaf that can't be reached, or from a credential that the leaf does not accept.
//!
//! Open after a 401 or 407 (for that credential) and after five connections in a row that failed (for the
//! leaf). After 30 s one call is let through; what it meets decides. A person's `resume` closes it.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::domain::outcome::Trouble;

/// So many connections in a row that failed open the breaker of a leaf.
const CONNECTIONS: u32 = 5;

/// How long it stays open before one call is let through.
pub(crate) const OPEN_FOR: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
enum State {
    /// Nothing is let through until then.
    Open(Instant),
    /// One call is under way and decides; if nothing is heard of it until then, another one is let through.
    Trying(Instant),
}

/// How much may be sent to the leaf now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permit {
    /// All that is due.
    All,
    /// One call, to see.
    One,
    /// Nothing until this moment.
    None(Instant),
}

/// The breakers of one leaf: its own, and one for each credential in trouble.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failed_connections: u32,
    leaf: Option<State>,
    credentials: BTreeMap<String, State>,
}

/// The call is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept;

/// What changed, to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) open: bool,
    pub(crate) why: String,
}

impl Breaker {
    /// What may be sent to the leaf at all.
    pub(crate) fn permit(&self, now: Instant) -> Permit {
        match self.leaf {
            None => Permit::All,
            Some(State::Open(until) | State::Trying(until)) if now < until => Permit::None(until),
            Some(State::Open(_) | State::Trying(_)) => Permit::One,
        }
    }

    /// Credentials that may not be used now; an empty string is the leaf's own auth.
    pub(crate) fn blocked(&self, now: Instant) -> Vec<String> {
        let blocked = self.credentials.iter().filter(|(_, state)| match state {
            State::Open(until) | State::Trying(until) => now < *until,
        });
        blocked.map(|(name, _)| name.clone()).collect()
    }

    /// When the first of these may be used again.
    pub(crate) fn credential_again(&self, now: Instant) -> Option<Instant> {
        let until = self.credentials.values().map(|state| match state {
            State::Open(until) | State::Trying(until) => *until,
        });
        until.filter(|until| now < *until).min()
    }

    /// Whether this call may go; where a breaker wants to see one call, it is the one, for so long.
    pub(crate) fn admit(
        &mut self,
        credential: &str,
        now: Instant,
        try_for: Duration,
    ) -> Result<(), Kept> {
        let mut both = [self.leaf.as_mut(), self.credentials.get_mut(credential)];
        // Both first: one that the other keeps back is no try.
        for state in both.iter().flatten() {
            if let State::Open(until) | State::Trying(until) = state
                && now < *until
            {
                return Err(Kept);
            }
        }
        for state in both.iter_mut().flatten() {
            **state = State::Trying(now + try_for);
        }
        Ok(())
    }

    /// An attempt was not made, and nothing is learned: if it was to be the one call, another one is.
    pub(crate) fn not_heard(&mut self, credential: &str, now: Instant) {
        for state in [self.leaf.as_mut(), self.credentials.get_mut(credential)] {
            if let Some(state @ State::Trying(_)) = state {
                *state = State::Open(now);
            }
        }
    }

    /// An attempt has ended: with this trouble, or with an answer (`None`).
    pub(crate) fn heard(
        &mut self,
        credential: &str,
        trouble: Option<Trouble>,
        now: Instant,
    ) -> Option<Change> {
        match trouble {
            Some(Trouble::Credential) => {
                self.failed_connections = 0;
                self.leaf = None;
                let was = self
                    .credentials
                    .insert(credential.to_owned(), State::Open(now + OPEN_FOR));
                let name = if credential.is_empty() {
                    "its own auth".to_owned()
                } else {
                    format!("credential {credential}")
                };
                was.is_none().then(|| Change {
                    open: true,
                    why: format!("it does not accept {name}"),
                })
            }
            Some(Trouble::Connection) => {
                self.not_heard(credential, now);
                self.failed_connections += 1;
                if self.leaf.is_none() && self.failed_connections < CONNECTIONS {
                    return None;
                }
                let was = self.leaf.replace(State::Open(now + OPEN_FOR));
                was.is_none().then(|| Change {
                    open: true,
                    why: format!("{CONNECTIONS} connections in a row have failed"),
                })
            }
            None => {
                self.failed_connections = 0;
                let closed =
                    self.leaf.take().is_some() | self.credentials.remove(credential).is_some();
                closed.then(|| Change {
                    open: false,
                    why: "it answers".to_owned(),
                })
            }
        }
    }

    /// A person says that it is well again, or a credential has changed.
    pub(crate) fn close(&mut self) -> bool {
        self.failed_connections = 0;
        let open = self.is_open();
        self.leaf = None;
        self.credentials.clear();
        open
    }

    /// Whether anything is kept back.
    pub(crate) fn is_open(&self) -> bool {
        self.leaf.is_some() || !self.credentials.is_empty()
    }

    /// Whether the whole leaf is kept back.
    pub(crate) fn leaf_is_open(&self) -> bool {
        self.leaf.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failed_connections_open_it_and_one_answer_closes_it() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            assert_eq!(breaker.heard("", Some(Trouble::Connection), now), None);
        }
        assert_eq!(breaker.permit(now), Permit::All);
        assert!(
            breaker
                .heard("", Some(Trouble::Connection), now)
                .is_some_and(|change| change.open)
        );
        assert_eq!(breaker.permit(now), Permit::None(now + OPEN_FOR));
        let later = now + OPEN_FOR;
        assert_eq!(breaker.permit(later), Permit::One);
        assert_eq!(breaker.admit("", later, Duration::from_secs(9)), Ok(()));
        assert!(
            breaker.admit("", later, Duration::from_secs(9)).is_err(),
            "only one call tries"
        );
        assert!(
            breaker
                .heard("", None, later)
                .is_some_and(|change| !change.open)
        );
        assert_eq!(breaker.permit(later), Permit::All);
    }

    #[test]
    fn a_refused_credential_blocks_only_itself() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        assert!(
            breaker
                .heard("acme", Some(Trouble::Credential), now)
                .is_some()
        );
        assert_eq!(breaker.blocked(now), ["acme"]);
        assert_eq!(breaker.credential_again(now), Some(now + OPEN_FOR));
        assert_eq!(breaker.permit(now), Permit::All);
        assert_eq!(breaker.admit("other", now, OPEN_FOR), Ok(()));
        assert!(breaker.admit("acme", now, OPEN_FOR).is_err());
        assert!(breaker.blocked(now + OPEN_FOR).is_empty());
        assert_eq!(breaker.credential_again(now + OPEN_FOR), None);
        assert!(breaker.close());
        assert!(!breaker.is_open());
    }

    #[test]
    fn what_is_kept_back_or_not_made_is_no_try() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        drop(breaker.heard("acme", Some(Trouble::Credential), now));
        for _ in 0..CONNECTIONS {
            drop(breaker.heard("", Some(Trouble::Connection), now));
        }
        let later = now + OPEN_FOR;
        assert_eq!(breaker.admit("acme", later, OPEN_FOR), Ok(()));
        drop(breaker.heard("acme", Some(Trouble::Connection), later));
        let again = later + OPEN_FOR;
        assert_eq!(breaker.blocked(again), [""; 0], "the try was the leaf's");
        drop(breaker.heard("acme", Some(Trouble::Credential), later));
        for _ in 0..CONNECTIONS {
            drop(breaker.heard("", Some(Trouble::Connection), now));
        }
        assert!(breaker.admit("acme", later, OPEN_FOR).is_err());
        assert_eq!(breaker.admit("", later, OPEN_FOR), Ok(()));
        assert!(breaker.admit("", later, OPEN_FOR).is_err());
        breaker.not_heard("", later);
        assert_eq!(breaker.admit("", later, OPEN_FOR), Ok(()));
    }

    #[test]
    fn a_try_that_is_never_heard_of_lets_another_one_through() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        drop(breaker.heard("", Some(Trouble::Credential), now));
        let later = now + OPEN_FOR;
        assert_eq!(breaker.admit("", later, Duration::from_secs(5)), Ok(()));
        assert!(
            breaker
                .admit("", later + Duration::from_secs(4), Duration::from_secs(5))
                .is_err()
        );
        assert_eq!(
            breaker.admit("", later + Duration::from_secs(5), Duration::from_secs(5)),
            Ok(())
        );
    }
}
