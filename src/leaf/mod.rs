//! Leaves: one HTTP exchange at a time, and what was seen of it. The only module that says reqwest.
//!
//! [`LeafClient::send`] never fails: a leaf's misbehaviour is [`Evidence`], judged elsewhere
//! ([`crate::domain::outcome`]). What it promises:
//!
//! - At most one request is written for each call of `send`: no redirects, no retries.
//! - [`Evidence::NotSent`] is said only where it is certain ([`progress`] is the proof, [`send`] the use).
//! - A request goes to the leaf's origin, under its base path ([`prepare`]).
//! - Nothing that is handed back holds a secret ([`redact`]) or more than the configured bytes ([`body`]).
//!
//! Connections are kept between calls, but for no longer than [`AGE_MAX`]: a leaf whose name moves gets its calls
//! at the new address by then, however busy the old connections are. reqwest has no upper age, so a client of that age
//! gives way to a new one (which reads the certificates' files anew), and ends with the last of its requests.

mod body;
mod headers;
mod memory;
mod prepare;
mod progress;
mod reach;
mod redact;
mod resolve;
mod retry_after;
mod send;
mod setup;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use secrecy::SecretString;
use tokio::time::Instant;

pub use self::setup::LeafClientError;
pub(crate) use self::{memory::Memory, reach::reach};
use self::{
    resolve::Lookup,
    setup::{Material, build},
};

use crate::{
    config::{Leaf, Proofs},
    domain::{evidence::Evidence, request::Request, trace::Trace},
};

/// As long as a name's old address may still get calls; seldom enough that new connections cost nothing.
const AGE_MAX: Duration = Duration::from_secs(300);

/// The HTTP client of one leaf: its connections, and its settings.
pub struct LeafClient {
    http: Mutex<Http>,
    age_max: Duration,
    leaf: Leaf,
    /// For what is answered.
    memory: Memory,
    lookup: Lookup,
}

/// A client with its connections, when it was made, and of what.
struct Http {
    client: reqwest::Client,
    since: Instant,
    digest: [u8; 32],
    proxy_password: Option<SecretString>,
}

impl Http {
    /// Blocking: reads files.
    fn new(leaf: &Leaf, lookup: &Lookup) -> Result<Self, LeafClientError> {
        Self::of(leaf, Material::read(leaf)?, lookup)
    }

    fn of(leaf: &Leaf, material: Material, lookup: &Lookup) -> Result<Self, LeafClientError> {
        Ok(Self {
            client: build(leaf, &material, lookup)?,
            since: Instant::now(),
            digest: material.digest(),
            proxy_password: material.proxy_password,
        })
    }
}

impl fmt::Debug for LeafClient {
    /// Without the proxy, whose URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base_url = self.leaf.base_url.as_str();
        f.debug_struct("LeafClient")
            .field("base_url", &base_url)
            .finish_non_exhaustive()
    }
}

impl LeafClient {
    /// Reads the leaf's certificates and makes its client; nothing is connected yet.
    ///
    /// # Errors
    /// Certificates that are missing or unusable, an unusable proxy.
    pub fn new(leaf: &Leaf) -> Result<Self, LeafClientError> {
        Self::looking_up(leaf, resolve::system())
    }

    fn looking_up(leaf: &Leaf, lookup: Lookup) -> Result<Self, LeafClientError> {
        Ok(Self {
            http: Mutex::new(Http::new(leaf, &lookup)?),
            age_max: AGE_MAX,
            leaf: leaf.clone(),
            memory: Memory::new(leaf.body_memory),
            lookup,
        })
    }

    fn current(&self) -> MutexGuard<'_, Http> {
        self.http.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers keep to the same room as those of that client.
    pub(crate) fn share_memory(&mut self, other: &Self) {
        self.memory = other.memory.clone();
    }

    /// The client with the connections to use now. One that has grown old is replaced, while others go on with it;
    /// where no new one can be made (a certificate's file that is just being written), it serves for another term.
    async fn http(&self) -> (reqwest::Client, Option<SecretString>) {
        let old = {
            let mut http = self.current();
            let now = (http.client.clone(), http.proxy_password.clone());
            if http.since.elapsed() < self.age_max {
                return now;
            }
            http.since = Instant::now();
            now
        };
        let (leaf, lookup) = (self.leaf.clone(), self.lookup.clone());
        match tokio::task::spawn_blocking(move || Http::new(&leaf, &lookup)).await {
            Ok(Ok(fresh)) => {
                let now = (fresh.client.clone(), fresh.proxy_password.clone());
                *self.current() = fresh;
                now
            }
            Ok(Err(_)) | Err(_) => old,
        }
    }

    /// Reads the files again: certificates, keys, the proxy's password. New connections use them; those under way end with
    /// the last of their requests. Gives whether they hold something else than before. Blocking.
    ///
    /// # Errors
    /// They are no good, such as a pair of which one half is not written yet: the former ones stay.
    pub fn refresh(&self) -> Result<bool, LeafClientError> {
        let material = Material::read(&self.leaf)?;
        if material.digest() == self.current().digest {
            return Ok(false);
        }
        let fresh = Http::of(&self.leaf, material, &self.lookup)?;
        *self.current() = fresh;
        Ok(true)
    }

    /// Makes one attempt, and says what was seen.
    ///
    /// `proofs` are the call's credential and signer as they are now, `trace` the place in a trace that the leaf goes on from. `timeout`
    /// is for the whole, the body included.
    /// `may_send` is asked last before the request is handed to a connection that is up: false means that
    /// nothing is sent any more.
    pub async fn send(
        &self,
        request: &Request,
        proofs: &Proofs,
        trace: Option<&Trace>,
        timeout: Duration,
        may_send: &(dyn Fn() -> bool + Send + Sync),
    ) -> Evidence {
        Box::pin(send::attempt(
            self, request, proofs, trace, timeout, may_send,
        ))
        .await
    }
}
