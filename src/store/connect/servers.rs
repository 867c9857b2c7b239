//! The servers that a connection string names: one, or several for failover.

use std::{fmt, net::IpAddr};

use super::{
    ConnectError,
    params::{Params, syntax, wrong},
};

/// One server: its name, which a certificate is for, and where it is if that is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// A name, an address, or the folder of a socket.
    pub(super) name: String,
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
}

impl Server {
    /// Whether it is reached through a socket of the file system, where there is no TLS.
    pub(super) fn is_socket(&self) -> bool {
        self.name.starts_with('/') && self.address.is_none()
    }

    /// Whether it is on this machine.
    pub(super) fn is_local(&self) -> bool {
        match self.address {
            Some(address) => address.is_loopback(),
            None => {
                self.is_socket()
                    || self.name == "localhost"
                    || self
                        .name
                        .parse()
                        .is_ok_and(|address: IpAddr| address.is_loopback())
            }
        }
    }
}

impl Params {
    /// The servers, in order. What no server has is left.
    pub(super) fn servers(&mut self) -> Result<Vec<Server>, ConnectError> {
        let mut list = |name: &str| {
            let all = self.take(name).filter(|all| !all.is_empty());
            let split = |all: String| all.split(',').map(|one| one.trim().to_owned()).collect();
            all.map_or_else(Vec::new, split)
        };
        let (names, addresses, ports): (Vec<String>, Vec<String>, Vec<String>) =
            (list("host"), list("hostaddr"), list("port"));
        let count = names.len().max(addresses.len());
        if count == 0 {
            return Err(syntax("it names no host"));
        }
        for (name, len, one_for_all) in [
            ("host", names.len(), false),
            ("hostaddr", addresses.len(), false),
            ("port", ports.len(), true),
        ] {
            if len != count && len != 0 && !(one_for_all && len == 1) {
                return Err(wrong(name, format!("{len} are given for {count} hosts")));
            }
        }
        let servers = (0..count).map(|index| {
            let given = |list: &[String]| list.get(index).filter(|one| !one.is_empty()).cloned();
            let address = given(&addresses).map(|text| {
                let parsed = text.parse::<IpAddr>();
                parsed.map_err(|_source| wrong("hostaddr", "an IP address is wanted"))
            });
            let address = address.transpose()?;
            let name = given(&names).or_else(|| address.map(|address| address.to_string()));
            let port = ports.get(index).or_else(|| ports.first());
            let port = port.filter(|port| !port.is_empty()).map(|port| {
                port.parse()
                    .map_err(|_source| wrong("port", "a number up to 65535 is wanted"))
            });
            Ok(Server {
                name: name.ok_or_else(|| syntax("one of its hosts is empty"))?,
                address,
                port: port.transpose()?.unwrap_or(5432),
            })
        });
        servers.collect()
    }
}

/// As in a connection string.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}
