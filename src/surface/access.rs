//! Who may read rows and who may act.
//!
//! With a token: whoever shows it, as `Authorization: Bearer …` or, on the page, as a session that the token has
//! opened. Without one: on a loopback listener everybody who is on this machine; elsewhere nobody. A browser adds
//! what it is told by other sites to the requests of the person before it, so an action has to come from the page
//! itself, and every request names a host that is ours: a name that somebody else's DNS points at this machine is
//! not.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header, uri::Authority};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use super::tries::Tries;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// To read rows.
    Read,
    /// To change something.
    Act,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// It shows no token.
    #[error("this needs the header `Authorization: Bearer …` with the token of listen.admin_token")]
    NoToken,
    /// It shows another one.
    #[error("that is not the token of listen.admin_token")]
    WrongToken,
    /// Too many wrong tokens came from there.
    #[error("too many wrong tokens came from this address: try again in {} s", seconds(*.retry_after))]
    TooManyTries {
        /// When to try again.
        retry_after: Duration,
    },
    /// There is none to show.
    #[error(
        "no listen.admin_token is configured, so rows can be read, and actions work, on a loopback \
         listen.address only"
    )]
    NoneConfigured,
    /// Somebody else's request, handed on by a proxy on this machine.
    #[error(
        "the request came through a proxy: without a listen.admin_token only requests made on this machine are served"
    )]
    Proxied,
    /// A page of another origin sent it.
    #[error(
        "an action has to come from the page itself, and this request comes from another origin"
    )]
    ForeignOrigin,
}

/// Who may do what on this listener.
#[derive(Debug)]
pub(super) struct Access {
    token: Option<SecretString>,
    on_loopback: bool,
    hosts: Vec<String>,
    tries: Tries,
}

impl Access {
    /// For a listener on this address. `hosts` are the names, beside `localhost` and addresses, that it is reached by.
    pub(super) fn new(
        token: Option<SecretString>,
        listener: SocketAddr,
        hosts: Vec<String>,
    ) -> Self {
        Self {
            token,
            on_loopback: listener.ip().is_loopback(),
            hosts,
            tries: Tries::default(),
        }
    }

    /// Whether a token is configured.
    pub(super) fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// The key for sessions that the token opens; another token makes another one.
    pub(super) fn session_key(&self) -> Option<[u8; 32]> {
        let token = self.token.as_ref()?.expose_secret();
        Some(Sha256::digest(format!("leafhopper session\0{token}")).into())
    }

    /// Whether the request names a host that is ours (RFC 9110, section 7.2), in its header and, where it has one there
    /// too, in its target.
    pub(super) fn is_our_host(&self, target: &Uri, headers: &HeaderMap) -> bool {
        let in_target = target.authority().map(|named| self.is_ours(named));
        host(headers).is_some_and(|named| self.is_ours(&named)) && in_target.unwrap_or(true)
    }

    fn is_ours(&self, authority: &Authority) -> bool {
        if authority.as_str().contains('@') {
            return false;
        }
        let name = authority.host().trim_matches(['[', ']']);
        match name.parse::<IpAddr>() {
            Ok(address) => !self.on_loopback || address.is_loopback(),
            Err(_name) => {
                name.eq_ignore_ascii_case("localhost")
                    || self
                        .hosts
                        .iter()
                        .any(|host| name.eq_ignore_ascii_case(host))
            }
        }
    }

    /// Whether a request with these headers may do that. `has_session`: a session that [`Self::is_token`] has
    /// opened came with it.
    ///
    /// # Errors
    /// It may not.
    pub(super) fn check(
        &self,
        right: Right,
        headers: &HeaderMap,
        peer: IpAddr,
        has_session: bool,
    ) -> Result<(), Denied> {
        if right == Right::Act && !is_same_origin(headers) {
            return Err(Denied::ForeignOrigin);
        }
        if self.token.is_some() {
            if has_session {
                return Ok(());
            }
            let shown = bearer(headers).ok_or(Denied::NoToken)?;
            return self.is_token(shown, peer);
        }
        if !self.on_loopback {
            return Err(Denied::NoneConfigured);
        }
        if ["forwarded", "x-forwarded-for", "x-real-ip", "via"]
            .iter()
            .any(|name| headers.contains_key(*name))
        {
            return Err(Denied::Proxied);
        }
        Ok(())
    }

    /// Whether this is the token. Compared in constant time; who is wrong too often is not compared any more for a
    /// while.
    ///
    /// # Errors
    /// It is not, or is not looked at.
    pub(super) fn is_token(&self, shown: &str, peer: IpAddr) -> Result<(), Denied> {
        let token = self.token.as_ref().ok_or(Denied::NoneConfigured)?;
        let now = Instant::now();
        if let Some(retry_after) = self.tries.wait(peer, now) {
            return Err(Denied::TooManyTries { retry_after });
        }
        // Of digests, so that not even the length shows.
        let ours = Sha256::digest(token.expose_secret());
        let shown = Sha256::digest(shown);
        if bool::from(ours.ct_eq(&shown)) {
            Ok(())
        } else {
            if self.tries.failed(peer, now) {
                tracing::warn!(
                    peer.address = %peer,
                    "a wrong token of listen.admin_token came from {peer}; others from there within a minute are not logged"
                );
            }
            Err(Denied::WrongToken)
        }
    }
}

/// Whole seconds after which it is surely over.
pub(super) fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + 1
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    only(headers, &header::HOST)?.to_str().ok()?.parse().ok()
}

/// The value of a header that stands there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// The token of `Authorization: Bearer …` (RFC 6750, section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = only(headers, &header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim())
        .filter(|token| !token.is_empty())
}

/// Whether no page of another origin sent it. What is no browser says nothing of an origin.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    if sites.any(|site| site != "same-origin" && site != "none") {
        return false;
    }
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let origin = only(headers, &header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let origin = origin.unwrap_or_default();
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"))
        .and_then(|rest| rest.parse::<Authority>().ok());
    authority.is_some() && authority == host(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| {
                let name = HeaderName::from_static(name);
                (name, value.parse().expect("a header value"))
            })
            .collect()
    }

    fn access(token: Option<&str>, listener: &str, hosts: &[&str]) -> Access {
        let listener = listener.parse().expect("an address");
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        Access::new(token.map(SecretString::from), listener, hosts)
    }

    #[test]
    fn a_name_that_is_not_ours_is_no_host() {
        let near = access(None, "127.0.0.1:9187", &["ops.example.com"]);
        let far = access(None, "0.0.0.0:9187", &[]);
        for (host, by_near, by_far) in [
            ("localhost:9187", true, true),
            ("127.0.0.1:9187", true, true),
            ("127.8.0.1", true, true),
            ("[::1]:9187", true, true),
            ("OPS.example.com", true, false),
            ("10.0.0.7:9187", false, true),
            ("evil.example.com", false, false),
            ("localhost.evil.example.com", false, false),
            ("", false, false),
            ("evil@localhost", false, false),
        ] {
            let headers = headers(&[("host", host)]);
            let path = Uri::from_static("/metrics");
            assert_eq!(near.is_our_host(&path, &headers), by_near, "{host}");
            assert_eq!(far.is_our_host(&path, &headers), by_far, "{host}");
            // What stands in the target goes before the header (RFC 9112, section 3.2.2), so it has to be ours as well.
            let foreign = Uri::from_static("http://evil.example.com/metrics");
            assert!(!near.is_our_host(&foreign, &headers), "{host}");
            let ours = Uri::from_static("http://localhost:9187/metrics");
            assert_eq!(near.is_our_host(&ours, &headers), by_near, "{host}");
        }
        let path = Uri::from_static("/metrics");
        assert!(!near.is_our_host(&path, &HeaderMap::new()));
        let twice = headers(&[("host", "localhost"), ("host", "evil.example.com")]);
        assert!(!near.is_our_host(&path, &twice));
    }

    #[test]
    fn an_action_of_another_origin_is_refused_whatever_else_it_has() {
        let access = access(Some("a-token-of-some-length"), "127.0.0.1:9187", &[]);
        let token = ("authorization", "Bearer a-token-of-some-length");
        let host = ("host", "localhost:9187");
        for (name, value, allowed) in [
            ("origin", "http://localhost:9187", true),
            ("origin", "https://localhost:9187", true),
            ("origin", "http://localhost:9188", false),
            ("origin", "http://evil.example.com", false),
            ("origin", "null", false),
            ("origin", "", false),
            ("sec-fetch-site", "same-origin", true),
            ("sec-fetch-site", "none", true),
            ("sec-fetch-site", "same-site", false),
            ("sec-fetch-site", "cross-site", false),
        ] {
            let headers = headers(&[token, host, (name, value)]);
            let acts = access.check(Right::Act, &headers, HERE, true).is_ok();
            assert_eq!(acts, allowed, "{name}: {value}");
            assert!(access.check(Right::Read, &headers, HERE, false).is_ok());
        }
        let plain = headers(&[token, host]);
        assert!(access.check(Right::Act, &plain, HERE, false).is_ok());
        for (name, ours, foreign) in [
            ("origin", "http://localhost:9187", "http://evil.example.com"),
            ("sec-fetch-site", "same-origin", "cross-site"),
        ] {
            let both = headers(&[token, host, (name, ours), (name, foreign)]);
            assert!(access.check(Right::Act, &both, HERE, true).is_err());
        }
    }

    #[test]
    fn without_a_token_only_this_machine_is_served() {
        let plain = headers(&[("host", "localhost:9187")]);
        let near = access(None, "127.0.0.1:9187", &[]);
        let far = access(None, "0.0.0.0:9187", &[]);
        for right in [Right::Read, Right::Act] {
            assert_eq!(near.check(right, &plain, HERE, false), Ok(()));
            assert_eq!(
                far.check(right, &plain, HERE, false),
                Err(Denied::NoneConfigured)
            );
            let proxied = headers(&[("host", "127.0.0.1:9187"), ("x-forwarded-for", "10.1.1.1")]);
            let denied = near.check(right, &proxied, HERE, false);
            assert_eq!(denied, Err(Denied::Proxied));
        }
    }

    #[test]
    fn only_the_token_opens_and_who_guesses_has_to_wait() {
        let access = access(Some("a-token-of-some-length"), "0.0.0.0:9187", &[]);
        let shown = |value: &str| headers(&[("host", "10.0.0.7"), ("authorization", value)]);
        let check = |value: &str, peer| access.check(Right::Act, &shown(value), peer, false);
        for (value, denied) in [
            ("Bearer a-token-of-some-lengt", Denied::WrongToken),
            ("Bearer a-token-of-some-lengthx", Denied::WrongToken),
            ("Basic a-token-of-some-length", Denied::NoToken),
            ("Bearer", Denied::NoToken),
            ("a-token-of-some-length", Denied::NoToken),
        ] {
            assert_eq!(check(value, HERE), Err(denied), "{value}");
        }
        for value in [
            "Bearer a-token-of-some-length",
            "bearer  a-token-of-some-length ",
        ] {
            assert_eq!(check(value, HERE), Ok(()), "{value}");
        }
        let guesser: IpAddr = "10.1.1.1".parse().expect("an address");
        let denied: Vec<Denied> = (0..50)
            .filter_map(|n| check(&format!("Bearer guess-{n}"), guesser).err())
            .collect();
        assert!(matches!(denied.last(), Some(Denied::TooManyTries { .. })));
        // Not even the right one is looked at; elsewhere it is.
        let right = "Bearer a-token-of-some-length";
        assert!(matches!(
            check(right, guesser),
            Err(Denied::TooManyTries { .. })
        ));
        assert_eq!(check(right, HERE), Ok(()));
    }
}
