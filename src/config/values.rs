//! Single values of the file: how each kind is written. Each reader says what would be right.

use std::{path::PathBuf, time::Duration};

use http::HeaderName;
use jiff::{
    SpanRelativeTo,
    fmt::friendly::{SpanParser, SpanPrinter},
};
use reqwest::Url;
use serde::{Deserialize, de::value::StrDeserializer};
use toml::de::DeValue;

use super::section::kind;
use crate::suggest::closest;

/// Headers that frame the message or belong to one hop (RFC 9110 section 7.6.1): nobody but the HTTP
/// client writes them.
const FRAMING: [&str; 11] = [
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A string.
pub(super) fn string(value: &DeValue<'_>) -> Result<String, String> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("is {}; a string is wanted", kind(value)))
}

pub(super) fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| format!("is {}; true or false is wanted", kind(value)))
}

/// An integer that is at least 1.
pub(super) fn positive(value: &DeValue<'_>) -> Result<u32, String> {
    let number = integer(value)?;
    u32::try_from(number)
        .ok()
        .filter(|number| *number >= 1)
        .ok_or_else(|| format!("{number} is out of range; 1 to {} is wanted", u32::MAX))
}

fn integer(value: &DeValue<'_>) -> Result<i64, String> {
    let integer = value
        .as_integer()
        .ok_or_else(|| format!("is {}; an integer is wanted", kind(value)))?;
    i64::from_str_radix(integer.as_str(), integer.radix())
        .map_err(|_source| format!("{integer} is too large"))
}

/// A finite number.
pub(super) fn number(value: &DeValue<'_>) -> Result<f64, String> {
    let text = match value {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
        DeValue::Float(float) => float.as_str(),
        other => return Err(format!("is {}; a number is wanted", kind(other))),
    };
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| format!("{text} is not a finite number"))
}

const WANTED: &str = "write a duration such as \"30s\", \"1m 30s\" or \"24h\"";

/// A duration as [`jiff`] reads it, `1m 30s`; days and weeks count 24 hours each day.
pub(super) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    match value {
        DeValue::String(text) => duration_of(text),
        DeValue::Integer(number) => Err(format!("{number} has no unit; {WANTED}")),
        DeValue::Float(number) => Err(format!("{number} has no unit; {WANTED}")),
        other => Err(format!("is {}; {WANTED}", kind(other))),
    }
}

/// The same of a text, which rows have too.
pub(crate) fn duration_of(text: &str) -> Result<Duration, String> {
    let span = SpanParser::new()
        .parse_span(text)
        .map_err(|_source| format!("{text:?} is not a duration; {WANTED}"))?;
    // Fails on months and years, whose length depends on the date.
    let length = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_source| format!("{text:?}: months and years have no fixed length; {WANTED}"))?;
    Duration::try_from(length).map_err(|_source| format!("{text:?} is negative; {WANTED}"))
}

/// A duration as the file writes it.
pub(super) fn shown(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}

/// As [`duration`], not zero.
pub(super) fn some_time(value: &DeValue<'_>) -> Result<Duration, String> {
    let time = duration(value)?;
    if time.is_zero() {
        return Err("is zero; it has to be longer than that".to_owned());
    }
    Ok(time)
}

/// A duration that is not zero, or `"forever"` (`None`).
pub(super) fn retention(value: &DeValue<'_>) -> Result<Option<Duration>, String> {
    if value.as_str() == Some("forever") {
        return Ok(None);
    }
    some_time(value)
        .map(Some)
        .map_err(|problem| format!("{problem}, or \"forever\""))
}

/// A size in bytes: `"1MiB"`, `"64KiB"`, `"512B"`.
pub(super) fn size(value: &DeValue<'_>) -> Result<usize, String> {
    const WANTED: &str = "write a size such as \"512B\", \"64KiB\" or \"1MiB\"";
    let text = match value {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(number) => return Err(format!("{number} has no unit; {WANTED}")),
        other => return Err(format!("is {}; {WANTED}", kind(other))),
    };
    let wrong = || format!("{text:?} is not a size; {WANTED}");
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(|| format!("{text:?} has no unit; {WANTED}"))?;
    let (number, unit) = text.split_at(digits);
    let factor: usize = match unit.trim_start() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: usize = number.parse().map_err(|_source| wrong())?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// Attempts per second: `"50/s"`, `"100/min"`, `"5000/h"`.
pub(super) fn rate(value: &DeValue<'_>) -> Result<f64, String> {
    const WANTED: &str = "write a rate such as \"50/s\", \"100/min\" or \"5000/h\"";
    let text = string(value).map_err(|problem| format!("{problem}; {WANTED}"))?;
    let wrong = || format!("{text:?} is not a rate; {WANTED}");
    let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
    let seconds = match unit.trim() {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_source| wrong())?;
    if !number.is_finite() {
        return Err(wrong());
    }
    if number <= 0.0 {
        return Err(format!(
            "{text:?} would never send; leave `rate` out for no limit, or {WANTED}"
        ));
    }
    Ok(number / seconds)
}

/// One of the words of an enum that [`serde`] knows.
pub(super) fn word<T: for<'de> Deserialize<'de>>(
    words: &'static [&'static str],
) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| {
        let text = string(value).map_err(|problem| format!("{problem}: {}", words.join(", ")))?;
        T::deserialize(StrDeserializer::<serde::de::value::Error>::new(&text)).map_err(|_source| {
            let hint = closest(&text, words)
                .map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"));
            format!("{text:?} is not one of {}{hint}", words.join(", "))
        })
    }
}

/// A method among those that are allowed.
pub(super) fn method(
    allowed: &'static [&'static str],
) -> impl Fn(&DeValue<'_>) -> Result<String, String> {
    move |value| {
        let text = string(value)?;
        if allowed.contains(&text.as_str()) {
            Ok(text)
        } else {
            Err(format!("{text:?} is not one of {}", allowed.join(", ")))
        }
    }
}

/// A list of final statuses.
pub(super) fn statuses(value: &DeValue<'_>) -> Result<Vec<u16>, String> {
    let items = value
        .as_array()
        .ok_or_else(|| format!("is {}; a list such as [409, 422] is wanted", kind(value)))?;
    items
        .iter()
        .map(|item| {
            let number = integer(item.get_ref())?;
            status(number).ok_or_else(|| format!("{number} is no HTTP status; 100 to 599 is"))
        })
        .collect()
}

/// An HTTP status.
pub(super) fn status(number: i64) -> Option<u16> {
    u16::try_from(number)
        .ok()
        .filter(|status| (100..=599).contains(status))
}

/// The name of a header that a client may set; lower case.
pub(super) fn header_name(value: &DeValue<'_>) -> Result<String, String> {
    let text = string(value)?;
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_source| format!("{text:?} is not a header's name (RFC 9110 section 5.1)"))?;
    if FRAMING.contains(&name.as_str()) {
        return Err(format!(
            "{text:?} frames the message or belongs to one hop; a leaf can't have it for itself"
        ));
    }
    Ok(name.as_str().to_owned())
}

/// A list of header names, lower case.
pub(super) fn header_names(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let items = value
        .as_array()
        .ok_or_else(|| format!("is {}; a list of header names is wanted", kind(value)))?;
    items
        .iter()
        .map(|item| {
            let text = string(item.get_ref())?;
            HeaderName::from_bytes(text.as_bytes())
                .map(|name| name.as_str().to_owned())
                .map_err(|_source| format!("{text:?} is not a header's name"))
        })
        .collect()
}

/// A list of host names, without ports.
pub(super) fn host_names(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let items = value
        .as_array()
        .ok_or_else(|| format!("is {}; a list of host names is wanted", kind(value)))?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    items
        .iter()
        .map(|item| {
            let text = string(item.get_ref())?;
            if text.is_empty() || !text.chars().all(is_name) {
                return Err(format!(
                    "{text:?} is not a host's name; \"ops.example.com\", without a port, is"
                ));
            }
            Ok(text)
        })
        .collect()
}

/// An http or https URL without query, fragment or user part. Prints nothing of a URL in which there can be a secret.
pub(super) fn base_url(value: &DeValue<'_>) -> Result<Url, String> {
    let text = string(value)?;
    // `user:password@host`, or a key in a query.
    let shown = if text.contains(['@', '?', '#']) {
        "it".to_owned()
    } else {
        format!("{text:?}")
    };
    let url = Url::parse(&text)
        .map_err(|source| format!("{shown} is not a URL ({source}); \"https://host/path\" is"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "has a user part; secrets belong into `auth` (of a proxy: `proxy_auth`)".to_owned(),
        );
    }
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("{shown} is neither an http nor an https URL"));
    }
    if url.query().is_some() {
        return Err("has a query; it would be lost, as each call brings its own".to_owned());
    }
    if url.fragment().is_some() {
        return Err("has a fragment, which HTTP does not carry".to_owned());
    }
    Ok(url)
}

/// A folder that exists.
pub(super) fn folder(value: &DeValue<'_>) -> Result<PathBuf, String> {
    let path = PathBuf::from(string(value)?);
    if path.is_dir() {
        Ok(path)
    } else {
        Err(format!("{} is not a folder that exists", path.display()))
    }
}
