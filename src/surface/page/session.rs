//! The session that a login opens: a cookie, and nothing on the server.
//!
//! Its value says until when it holds, who it is, and has a MAC over that whose key is derived from the token. So it
//! holds at each instance and after a restart, and no longer once the token is another one.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::{SignedDuration, Timestamp};
use sha2::Sha256;
use uuid::Uuid;

/// The cookie.
pub(super) const COOKIE: &str = "leafhopper_session";

/// So long a session holds: a shift, and a bit.
pub(super) const HOURS: i64 = 12;

/// A name of more characters is not taken.
pub(super) const NAME_MAX: usize = 60;

/// Somebody who has shown the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    /// As they call themselves; kept with what they do.
    pub(super) name: String,
}

impl Session {
    /// The cookie's value.
    pub(super) fn open(&self, key: &[u8; 32], now: Timestamp) -> String {
        let until = now + SignedDuration::from_hours(HOURS);
        let nonce = Uuid::new_v4().simple();
        let name = BASE64.encode(&self.name);
        let said = format!("1.{}.{nonce}.{name}", until.as_second());
        let mac = BASE64.encode(mac(key, &said).finalize().into_bytes());
        format!("{said}.{mac}")
    }

    /// The session that this value opens, if it does.
    pub(super) fn read(key: &[u8; 32], value: &str, now: Timestamp) -> Option<Self> {
        let (said, shown) = value.rsplit_once('.')?;
        let shown = BASE64.decode(shown).ok()?;
        // Compared in constant time, and before anything of it is believed.
        mac(key, said).verify_slice(&shown).ok()?;
        let mut parts = said.split('.');
        let (version, until) = (parts.next()?, parts.next()?);
        let name = parts.nth(1)?;
        let until = Timestamp::from_second(until.parse().ok()?).ok()?;
        let name = String::from_utf8(BASE64.decode(name).ok()?).ok()?;
        (version == "1" && now < until).then_some(Self { name })
    }
}

fn mac(key: &[u8; 32], said: &str) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("a MAC takes a key of any length");
    mac.chain_update(said)
}

/// A name as it may be kept: trimmed, of a bounded length, on one line; `None` where nothing is left.
pub(super) fn name(typed: &str) -> Option<String> {
    let name: String = typed.chars().filter(|c| !c.is_control()).collect();
    let name: String = name.trim().chars().take(NAME_MAX).collect();
    let name = name.trim_end();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_session_holds_for_its_time_and_only_under_its_key() {
        let session = Session {
            name: "Ada Λ.; \"x\"".to_owned(),
        };
        let value = session.open(&KEY, at(1000));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        assert!(value.chars().all(plain), "{value}");
        let end = 1000 + HOURS * 3600;
        assert_eq!(Session::read(&KEY, &value, at(end - 1)), Some(session));
        assert_eq!(Session::read(&KEY, &value, at(end)), None);
        assert_eq!(Session::read(&[8; 32], &value, at(1001)), None);
    }

    #[test]
    fn no_part_of_it_can_be_changed() {
        let session = Session {
            name: "ada".to_owned(),
        };
        let value = session.open(&KEY, at(1000));
        for (place, old) in value.char_indices() {
            let new = if old == 'A' { 'B' } else { 'A' };
            let mut changed = value.clone();
            changed.replace_range(place..=place, &new.to_string());
            let read = Session::read(&KEY, &changed, at(1001));
            // The last digit of the MAC has bits that mean nothing; what it says is the same then.
            assert!(
                read.is_none() || read.as_ref() == Some(&session),
                "{changed}"
            );
            assert!(read.is_none() || place == value.len() - 1, "{changed}");
        }
        for value in [
            "",
            ".",
            "1.2.3",
            "1.99999999999.x.YQ",
            "1.99999999999.x.YQ.",
        ] {
            assert_eq!(Session::read(&KEY, value, at(1001)), None, "{value}");
        }
    }

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(name("  Ada\r\nL. "), Some("AdaL.".to_owned()));
        assert_eq!(name(" \t\n"), None);
        assert_eq!(
            name(&"x".repeat(999)).map(|name| name.len()),
            Some(NAME_MAX)
        );
    }
}
