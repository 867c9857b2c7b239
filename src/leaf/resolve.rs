//! The addresses of names, of which private ones can be refused (`private_addresses = "refuse"`).
//!
//! The addresses that are looked at are the ones that are connected to, for each connection: a name that leads elsewhere
//! by then is looked at again. A literal address in a URL never comes here; the configuration refuses it.

use std::{fmt, io, net::SocketAddr, pin::Pin, sync::Arc};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::{
    config::{Leaf, PrivateAddresses},
    domain::address::is_public,
};

type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Asks for the addresses of a name.
pub(super) type Lookup = Arc<dyn Fn(String) -> Found + Send + Sync>;

/// The system's: `/etc/hosts`, DNS, whatever it is told to ask.
pub(super) fn system() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    })
}

/// What the HTTP client asks.
pub(super) struct Resolver {
    pub(super) lookup: Lookup,
    pub(super) private: PrivateAddresses,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let found = (self.lookup)(name.clone());
        let private = self.private;
        Box::pin(async move {
            let addresses: Addrs = Box::new(allowed(&name, found.await?, private)?.into_iter());
            Ok(addresses)
        })
    }
}

/// The addresses at which `check` connects to the leaf, as a call would.
pub(crate) async fn addresses(leaf: &Leaf, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = tokio::net::lookup_host((host, port)).await?.collect();
    allowed(host, found, leaf.private_addresses).map_err(io::Error::other)
}

fn allowed(
    name: &str,
    found: Vec<SocketAddr>,
    private: PrivateAddresses,
) -> Result<Vec<SocketAddr>, Private> {
    if private == PrivateAddresses::Allow {
        return Ok(found);
    }
    let (public, private): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|address| is_public(address.ip()));
    match private.first() {
        Some(first) if public.is_empty() => Err(Private {
            name: name.to_owned(),
            address: *first,
        }),
        _ => Ok(public),
    }
}

/// A name that leads into one's own network alone.
#[derive(Debug)]
struct Private {
    name: String,
    address: SocketAddr,
}

impl fmt::Display for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} leads to {}, which is no public address, and private_addresses = \"refuse\"",
            self.name,
            self.address.ip()
        )
    }
}

impl std::error::Error for Private {}
