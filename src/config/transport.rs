//! How a leaf is reached: TLS, proxy, and which addresses; and what these demand of each other.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use secrecy::SecretString;
use toml::de::DeValue;

use super::{
    Env,
    credentials::fits_basic,
    model::{Leaf, PrivateAddresses, Tls},
    secrets::{Source, read_file},
    section::Section,
    values,
};
use crate::domain::address::is_public;

/// `proxy_auth` of a leaf: user and password of Basic authentication at its proxy.
#[derive(Debug, Clone)]
pub struct ProxyAuth {
    /// The user.
    pub user: String,
    source: Source,
    /// As it was when the configuration was loaded.
    password: SecretString,
}

impl ProxyAuth {
    /// The password as its file has it now. Blocking.
    ///
    /// # Errors
    /// The file can't be read, or holds no password; the text names it.
    pub fn password(&self) -> Result<SecretString, String> {
        match &self.source {
            Source::Env(_) => Ok(self.password.clone()),
            Source::File(path) => read_file(path),
        }
    }

    /// One whose password is known, for tests of what is made of it.
    #[cfg(test)]
    pub(crate) fn known(user: &str, password: &str) -> Self {
        Self {
            user: user.to_owned(),
            source: Source::Env("KNOWN".to_owned()),
            password: password.to_owned().into(),
        }
    }
}

/// Reads `user` and `password`.
pub(super) fn user_and_password(
    section: &Section<'_>,
    env: Env<'_>,
) -> (Option<String>, Option<(Source, SecretString)>) {
    let user = section.required("user", "write user = \"NAME\"", |value| {
        let user = values::string(value)?;
        if user.contains(':') || user.chars().any(char::is_control) {
            return Err(
                "a user of Basic authentication holds no colon and no control character (RFC 7617)"
                    .to_owned(),
            );
        }
        Ok(user)
    });
    section.check(
        "password",
        section.gives("password"),
        "missing; use { env = \"NAME\" } or { file = \"/path\" }",
    );
    (user, section.secret("password", env, fits_basic))
}

pub(super) fn proxy_auth(section: Section<'_>, env: Env<'_>) -> Option<ProxyAuth> {
    let (user, read) = user_and_password(&section, env);
    section.finish();
    let (source, password) = read?;
    Some(ProxyAuth {
        user: user?,
        source,
        password,
    })
}

pub(super) fn tls(section: Section<'_>) -> Tls {
    let certificates = |value: &DeValue<'_>| {
        let path = PathBuf::from(values::string(value)?);
        let read = CertificateDer::pem_file_iter(&path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|source| format!("{}: {source}", path.display()))?;
        if read.is_empty() {
            return Err(format!("{} holds no certificate in PEM", path.display()));
        }
        Ok(path)
    };
    let key = |value: &DeValue<'_>| {
        let path = PathBuf::from(values::string(value)?);
        PrivateKeyDer::from_pem_file(&path).map_err(|source| {
            format!("{} holds no private key in PEM: {source}", path.display())
        })?;
        Ok(path)
    };
    let tls = Tls {
        ca: section.get("ca", certificates),
        client: section
            .get("cert", certificates)
            .zip(section.get("key", key)),
    };
    if section.gives("cert") != section.gives("key") {
        section.fault("", "`cert` and `key` only make sense together");
    }
    section.finish();
    tls
}

/// What the settings demand of each other.
pub(super) fn check(section: &Section<'_>, leaf: &Leaf) {
    let clear = leaf.base_url.scheme() == "http";
    let host = leaf.base_url.host_str().unwrap_or_default();
    let near = host == "localhost"
        || host == "[::1]"
        || host.parse::<Ipv4Addr>().is_ok_and(|it| it.is_loopback());
    let proxy = leaf.proxy.as_ref();
    if clear && leaf.auth.is_some() && !near {
        section.warn("base_url", "is http, so the leaf's secret travels in clear");
    }
    if clear && section.gives("tls") && proxy.is_none_or(|proxy| proxy.scheme() == "http") {
        section.warn("tls", "has no effect: base_url is http");
    }
    if section.gives("proxy_auth") && !section.gives("proxy") {
        section.fault("proxy_auth", "needs `proxy`: nobody else is told of it");
    }
    if leaf.private_addresses == PrivateAddresses::Allow {
        return;
    }
    section.check(
        "private_addresses",
        proxy.is_none(),
        "is \"refuse\", but through a proxy it is the proxy that looks the name up and connects; \
         let the proxy refuse, or leave one of the two out",
    );
    let literal: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    section.check(
        "private_addresses",
        literal.is_none_or(is_public),
        format!("is \"refuse\", and the address {host} of base_url is not a public one"),
    );
}
