//! `Retry-After` (RFC 9110 section 10.2.3) as a delay.

use std::time::{Duration, SystemTime};

/// Far beyond any use, and far below what overflows; the leaf's own maximum cuts it further.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Reads the header's values. `date` is the answer's own `Date`: by it, a date is a delay whatever the leaf's clock
/// says. Without one, `now` is taken.
///
/// What is unreadable, past, or said twice in different ways is as good as absent.
pub(crate) fn delay<'a>(
    mut values: impl Iterator<Item = &'a [u8]>,
    date: Option<&[u8]>,
    now: SystemTime,
) -> Option<Duration> {
    let value = values.next()?.trim_ascii();
    if values.any(|other| other.trim_ascii() != value) {
        return None;
    }
    let value = std::str::from_utf8(value).ok()?;
    if value.is_empty() {
        return None;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Only a number that is too large can't be read here.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(DELAY_MAX));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let from = date.and_then(read_date).unwrap_or(now);
    until
        .duration_since(from)
        .ok()
        .map(|delay| delay.min(DELAY_MAX))
}

fn read_date(value: &[u8]) -> Option<SystemTime> {
    let value = std::str::from_utf8(value).ok()?;
    httpdate::parse_http_date(value.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn read(values: &[&str], date: Option<&str>) -> Option<u64> {
        let now = httpdate::parse_http_date(NOW).unwrap();
        let values = values.iter().map(|value| value.as_bytes());
        delay(values, date.map(str::as_bytes), now).map(|delay| delay.as_secs())
    }

    #[test]
    fn a_readable_value_is_a_delay() {
        let year = DELAY_MAX.as_secs();
        for (value, date, seconds) in [
            ("120", None, 120),
            (" 120 ", None, 120),
            ("0", None, 0),
            ("007", None, 7),
            ("9999999999", None, year),
            ("18446744073709551616", None, year),
            ("Sun, 06 Nov 1994 08:51:07 GMT", None, 90),
            ("Sunday, 06-Nov-94 08:51:07 GMT", None, 90),
            ("Sun Nov  6 08:51:07 1994", None, 90),
            (NOW, None, 0),
            ("Fri, 31 Dec 9999 23:59:59 GMT", None, year),
            // A leaf whose clock is wrong still means a delay.
            (
                "Tue, 01 Jan 2030 00:01:30 GMT",
                Some("Tue, 01 Jan 2030 00:00:00 GMT"),
                90,
            ),
            (
                "Tue, 01 Jan 1980 00:01:30 GMT",
                Some("Tue, 01 Jan 1980 00:00:00 GMT"),
                90,
            ),
            ("Sun, 06 Nov 1994 08:51:07 GMT", Some("soon"), 90),
        ] {
            assert_eq!(read(&[value], date), Some(seconds), "{value} {date:?}");
        }
        assert_eq!(read(&["5", "5"], None), Some(5), "the same twice");
    }

    #[test]
    fn anything_else_is_as_good_as_absent() {
        for values in [
            &[][..],
            &[""],
            &[" "],
            &["-5"],
            &["+5"],
            &["1.5"],
            &["abc"],
            &["5, 5"],
            &["5", "6"],
            &["5", "abc"],
            &["Sun, 06 Nov 1994 08:49:36 GMT"],
            &["Sun, 06 Nov 1994 08:51:07 CET"],
            &["\u{664}"],
        ] {
            assert_eq!(read(values, None), None, "{values:?}");
        }
        let past = read(
            &["Tue, 01 Jan 2030 00:00:00 GMT"],
            Some("Tue, 01 Jan 2030 00:00:01 GMT"),
        );
        assert_eq!(past, None, "past by the leaf's own clock");
    }
}
