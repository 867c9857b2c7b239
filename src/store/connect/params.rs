//! A connection string as parameters: both notations, read strictly, so that nothing of a password can
//! be taken for something that is shown.

use std::error::Error as _;

use tokio_postgres::config::{ChannelBinding, TargetSessionAttrs};

use super::{
    ConnectError,
    words::{FIXED, KNOWN, OURS, UNSUPPORTED},
};
use crate::suggest::closest;

const RESERVED: &str = "reserved characters of a user or a password have to be percent-encoded \
 (`@` as %40, `/` as %2F, `?` as %3F, `#` as %23)";

/// Names and values, in order; a later one of the same name goes before an earlier one.
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub(super) fn read(text: &str) -> Result<Self, ConnectError> {
        let text = text.trim();
        let url = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"));
        let params = match url {
            Some(rest) => of_url(rest)?,
            None if text.contains("://") => {
                return Err(syntax("the scheme has to be postgres:// or postgresql://"));
            }
            None => of_pairs(text)?,
        };
        params.into_iter().try_fold(Self(Vec::new()), Self::with)
    }

    /// Adds one, if it is known.
    fn with(mut self, (name, value): (String, String)) -> Result<Self, ConnectError> {
        // As libpq calls it.
        let name = if name == "keepalives_count" {
            "keepalives_retries".to_owned()
        } else {
            name
        };
        if let Some((_, values, why)) = FIXED.into_iter().find(|(known, ..)| *known == name) {
            return match values.contains(&value.as_str()) {
                true => Ok(self),
                false => Err(ConnectError::Parameter {
                    name,
                    problem: why.to_owned(),
                }),
            };
        }
        if let Some((_, instead)) = UNSUPPORTED.into_iter().find(|(known, _)| *known == name) {
            return Err(ConnectError::Parameter {
                name,
                problem: format!("is not supported; {instead}"),
            });
        }
        if KNOWN.contains(&name.as_str()) || OURS.contains(&name.as_str()) {
            self.0.retain(|(known, _)| *known != name);
            self.0.push((name, value));
            return Ok(self);
        }
        let known: Vec<&str> = KNOWN.into_iter().chain(OURS).collect();
        let near = closest(&name, &known);
        if near.is_none() && self.get("password").is_some() {
            return Err(syntax(
                "an unknown parameter follows `password`; it is not shown, as it may be a piece \
                 of a password whose spaces \
                 or `&` are not quoted",
            ));
        }
        let hint = near.map_or_else(
            || format!("; known: {}", known.join(", ")),
            |near| format!("; did you mean `{near}`?"),
        );
        Err(ConnectError::UnknownParameter { name, hint })
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Hands them on, but for the servers.
    pub(super) fn into_config(mut self) -> Result<tokio_postgres::Config, ConnectError> {
        let attrs = match self.take("target_session_attrs").as_deref() {
            // Of several hosts the one that takes writes is used, also after a failover.
            None | Some("read-write" | "primary") => TargetSessionAttrs::ReadWrite,
            Some("any") => TargetSessionAttrs::Any,
            Some("read-only" | "standby" | "prefer-standby") => {
                return Err(wrong(
                    "target_session_attrs",
                    "a server that is read-only is of no use; read-write (the default) or any is",
                ));
            }
            Some(_) => return Err(wrong("target_session_attrs", "read-write or any is wanted")),
        };
        let binding = match self.take("channel_binding").as_deref() {
            None | Some("prefer") => ChannelBinding::Prefer,
            Some("require") => ChannelBinding::Require,
            Some("disable") => ChannelBinding::Disable,
            Some(_) => {
                return Err(wrong(
                    "channel_binding",
                    "one of disable, prefer, require is wanted",
                ));
            }
        };
        // In milliseconds for libpq, in seconds for tokio_postgres.
        let user_timeout = match self.take("tcp_user_timeout") {
            None => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_source| {
                wrong("tcp_user_timeout", "a number of milliseconds is wanted")
            })?),
        };
        let mut quoted = String::new();
        for (name, value) in &self.0 {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            quoted.push_str(&format!("{name}='{value}' "));
        }
        let mut config: tokio_postgres::Config =
            quoted.parse().map_err(|source: tokio_postgres::Error| {
                // Names the parameter, not its value.
                let cause = source.source().map(ToString::to_string);
                syntax(cause.as_deref().unwrap_or("a parameter has no valid value"))
            })?;
        if let Some(user_timeout) = user_timeout.filter(|milliseconds| *milliseconds > 0) {
            config.tcp_user_timeout(std::time::Duration::from_millis(user_timeout));
        }
        config.target_session_attrs(attrs).channel_binding(binding);
        Ok(config)
    }
}

pub(super) fn wrong(name: &str, problem: impl Into<String>) -> ConnectError {
    ConnectError::Parameter {
        name: name.to_owned(),
        problem: problem.into(),
    }
}

pub(super) fn syntax(problem: &str) -> ConnectError {
    ConnectError::Syntax(problem.to_owned())
}

/// `USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?NAME=VALUE&NAME=VALUE`
fn of_url(rest: &str) -> Result<Vec<(String, String)>, ConnectError> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    // Were one of them in a password, what follows it would be a host, a database or a parameter, and
    // be shown as such. An address of e-mail in the query is encoded too, then.
    let ats = authority.matches('@').count();
    if ats > 1 || path.contains(['@', '#']) || query.contains(['@', '#']) {
        return Err(syntax(RESERVED));
    }
    let mut params = Vec::new();
    let mut add = |name: &str, value: String| params.push((name.to_owned(), value));
    let hosts = match authority.split_once('@') {
        None => authority,
        Some((credentials, hosts)) => {
            let (user, password) = match credentials.split_once(':') {
                None => (credentials, None),
                Some((user, password)) => (user, Some(password)),
            };
            if !user.is_empty() {
                add("user", decode(user)?);
            }
            if let Some(password) = password {
                add("password", decode(password)?);
            }
            hosts
        }
    };
    if !hosts.is_empty() {
        let (mut names, mut ports) = (Vec::new(), Vec::new());
        for host in hosts.split(',') {
            let (name, port) = host_and_port(host)?;
            names.push(decode(name)?);
            ports.push(port);
        }
        add("host", names.join(","));
        add("port", ports.join(","));
    }
    let database = path.strip_prefix('/').unwrap_or(path);
    if !database.is_empty() {
        add("dbname", decode(database)?);
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| syntax("a parameter has no `=` and value"))?;
        add(&decode(name)?, decode(value)?);
    }
    Ok(params)
}

/// The port is empty where none is given.
fn host_and_port(host: &str) -> Result<(&str, &str), ConnectError> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest
                .split_once(']')
                .ok_or_else(|| syntax("an IPv6 address has no closing bracket"))?;
            let port = if port.is_empty() {
                ""
            } else {
                port.strip_prefix(':')
                    .ok_or_else(|| syntax("something else than a port follows an IPv6 address"))?
            };
            (name, port)
        }
        None => host.split_once(':').unwrap_or((host, "")),
    };
    if port.is_empty() || port.parse::<u16>().is_ok() {
        Ok((name, port))
    } else {
        Err(syntax(&format!(
            "a host's port is not a number; {RESERVED}"
        )))
    }
}

/// Percent-decodes. What is no valid escape is an error, not left as it stands.
fn decode(text: &str) -> Result<String, ConnectError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let escape = tail
            .get(..2)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let byte = escape.ok_or_else(|| {
            syntax("a `%` is not followed by two hexadecimal digits; as itself it is written %25")
        })?;
        bytes.push(byte);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_source| syntax("an escape does not give UTF-8"))
}

/// `name=value name='quoted value'`, with backslash as the escape.
fn of_pairs(text: &str) -> Result<Vec<(String, String)>, ConnectError> {
    let mut params = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or_else(|| {
            syntax(
                "neither a URL (postgres://user@host/database) nor pairs of name=value; a \
             value with spaces is quoted",
            )
        })?;
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(syntax(
                "a value with spaces has to be quoted: name='a value'",
            ));
        }
        let (value, after) = pair_value(after.trim_start())?;
        params.push((name.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(params)
}

/// The value, and what follows it.
fn pair_value(text: &str) -> Result<(String, &str), ConnectError> {
    let quoted = text.starts_with('\'');
    let body = if quoted { &text[1..] } else { text };
    let mut value = String::new();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                if let Some((_, escaped)) = chars.next() {
                    value.push(escaped);
                }
            }
            '\'' if quoted => return Ok((value, &body[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &body[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(syntax("a quoted value does not end"));
    }
    Ok((value, ""))
}
