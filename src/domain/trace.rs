//! Where a call stands in its caller's trace, as W3C Trace Context writes it.

/// The longest list of vendors that `tracestate` may have (W3C Trace Context, section 3.3.1.1).
const MEMBERS_MAX: usize = 32;

/// A place in a trace: a `traceparent` that is valid, and the `tracestate` that goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    parent: String,
    state: Option<String>,
}

impl Trace {
    /// The place that a row names. A `traceparent` that is broken would end the trace wherever it is read, so it counts as
    /// none; a broken `tracestate` costs only itself.
    #[must_use]
    pub fn of(parent: Option<&str>, state: Option<&str>) -> Option<Self> {
        let parent = parent.filter(|it| is_traceparent(it))?.to_owned();
        let state = state.filter(|it| is_tracestate(it)).map(str::to_owned);
        Some(Self { parent, state })
    }

    /// The header `traceparent`.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// The header `tracestate`.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Which trace: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.parent[3..35]
    }

    /// Which span of it: 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> &str {
        &self.parent[36..52]
    }

    /// `trace-flags`, of which the lowest bit says that the trace is recorded.
    #[must_use]
    pub fn flags(&self) -> u8 {
        u8::from_str_radix(&self.parent[53..55], 16).unwrap_or_default()
    }
}

/// Section 3.2: `version-traceid-parentid-flags`, lower-case hex, ids not all zero.
fn is_traceparent(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let hex = |part: &str, digits: usize| {
        part.len() == digits
            && part
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let set = |part: &str| part.bytes().any(|byte| byte != b'0');
    let [version, trace, parent, flags, later @ ..] = parts.as_slice() else {
        return false;
    };
    hex(version, 2)
        && *version != "ff"
        && hex(trace, 32)
        && set(trace)
        && hex(parent, 16)
        && set(parent)
        && hex(flags, 2)
        // Later versions may have more parts, version 00 has none.
        && (later.is_empty() || *version != "00")
        && later.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Section 3.3: `key=value` of at most 32 vendors, each once, the latest first.
fn is_tracestate(value: &str) -> bool {
    let members = value
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']));
    let members: Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    let pairs = members.iter().map(|member| member.split_once('='));
    let valid = pairs.clone().all(|pair| pair.is_some_and(is_member));
    let mut keys: Vec<&str> = pairs.flatten().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    valid && (1..=MEMBERS_MAX).contains(&members.len()) && keys.len() == members.len()
}

fn is_member((key, value): (&str, &str)) -> bool {
    let of_key =
        |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let of_value = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=256).contains(&key.len())
        && key.bytes().all(of_key)
        && key.starts_with(|first: char| first.is_ascii_alphanumeric())
        && key.matches('@').count() <= 1
        && (1..=256).contains(&value.len())
        && value.bytes().all(of_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn traceparents_are_told_from_other_texts() {
        for (value, valid) in [
            (format!("00-{TRACE}-b7ad6b7169203331-01"), true),
            (format!("cc-{TRACE}-b7ad6b7169203331-01-later"), true),
            (format!("cc-{TRACE}-b7ad6b7169203331-01-la\nter"), false),
            (format!("00-{TRACE}-b7ad6b7169203331-01-later"), false),
            (format!("ff-{TRACE}-b7ad6b7169203331-01"), false),
            (format!("00-{TRACE}-0000000000000000-01"), false),
            (format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), false),
            (
                format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
                false,
            ),
            (format!("00-{TRACE}-b7ad6b7169203331"), false),
            (String::new(), false),
        ] {
            assert_eq!(is_traceparent(&value), valid, "{value}");
            let trace = Trace::of(Some(&value), None);
            assert_eq!(trace.is_some(), valid, "{value}");
        }
    }

    #[test]
    fn a_place_is_told_by_its_parts() {
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let trace = Trace::of(Some(&parent), Some("rojo=1")).unwrap();
        assert_eq!(trace.trace_id(), TRACE);
        assert_eq!(trace.span_id(), "b7ad6b7169203331");
        assert_eq!(trace.flags(), 1);
        assert_eq!(
            (trace.parent(), trace.state()),
            (parent.as_str(), Some("rojo=1"))
        );
        assert_eq!(Trace::of(None, Some("rojo=1")), None);
    }

    #[test]
    fn a_broken_tracestate_costs_only_itself() {
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let many = |count: usize| {
            let members: Vec<String> = (0..count).map(|number| format!("v{number}=x")).collect();
            members.join(",")
        };
        for (state, valid) in [
            ("congo=t61rcWkgMzE", true),
            ("rojo=00f067aa0ba902b7, congo=t61rcWkgMzE,", true),
            ("fw529a3039@dt=FfAAAAAAAAAA;x", true),
            (&many(32), true),
            (&many(33), false),
            ("", false),
            (",", false),
            ("rojo", false),
            ("rojo=", false),
            ("rojo=a=b", false),
            ("Rojo=1", false),
            ("@dt=1", false),
            ("a@b@c=1", false),
            ("rojo=1,rojo=2", false),
            ("rojo=1\r\nx-evil: 1", false),
            ("rojo=é", false),
        ] {
            let trace = Trace::of(Some(&parent), Some(state)).unwrap();
            assert_eq!(trace.state().is_some(), valid, "{state}");
            assert_eq!(trace.parent(), parent);
        }
    }
}
