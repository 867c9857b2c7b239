//! OpenTelemetry's variables, as far as they are to be looked at before the SDK reads them by itself: it says nothing of what
//! it can't use, and shows what may be secret.

use crate::config::Env;

/// Of two variables the one that is about traces alone goes before the other.
const ENDPOINT: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const PROTOCOL: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
const COMPRESSION: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
];

const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// A variable that says something.
fn set(env: Env<'_>, name: &'static str) -> Option<(&'static str, String)> {
    let value = env(name).filter(|value| !value.is_empty());
    value.map(|value| (name, value))
}

fn either(env: Env<'_>, names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| set(env, name))
}

/// The collector, without what may be secret of its URL, where spans are asked for; and what else is asked for and is not
/// done.
///
/// # Errors
/// Spans are asked for in a way in which they can't be exported.
pub(super) fn read(env: Env<'_>) -> Result<Option<(String, Vec<String>)>, String> {
    let Some((name, endpoint)) = either(env, ENDPOINT) else {
        return Ok(None);
    };
    let disabled = set(env, "OTEL_SDK_DISABLED");
    if disabled.is_some_and(|(_, value)| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    match set(env, "OTEL_TRACES_EXPORTER") {
        Some((_, exporter)) if exporter == "none" => return Ok(None),
        Some((name, exporter)) if exporter != "otlp" => {
            return Err(format!("{name} is {exporter:?}; otlp or none is wanted"));
        }
        _ => {}
    }
    match either(env, PROTOCOL) {
        Some((name, protocol)) if protocol != "http/protobuf" => {
            return Err(format!(
                "{name} is {protocol:?}; http/protobuf is what is spoken here, at port 4318 of most collectors"
            ));
        }
        _ => {}
    }
    let collector = collector(&endpoint).map_err(|flaw| format!("{name} {flaw}"))?;
    Ok(Some((collector, not_followed(env))))
}

fn collector(endpoint: &str) -> Result<String, &'static str> {
    const NO_URL: &str = "is no URL of http or https; http://HOST:4318 is wanted";
    let url: http::Uri = endpoint.parse().map_err(|_shown_nowhere| NO_URL)?;
    let scheme = url.scheme_str().filter(|it| ["http", "https"].contains(it));
    let (Some(scheme), Some(authority)) = (scheme, url.authority()) else {
        return Err(NO_URL);
    };
    if authority.as_str().contains('@') {
        return Err(
            "holds a user or a password; what authenticates belongs into OTEL_EXPORTER_OTLP_HEADERS",
        );
    }
    let port = authority.port_u16().map(|port| format!(":{port}"));
    let place = format!("{}{}", authority.host(), port.unwrap_or_default());
    // Whatever else stands where a port should.
    if authority.as_str() != place {
        return Err(NO_URL);
    }
    Ok(format!("{scheme}://{place}"))
}

fn not_followed(env: Env<'_>) -> Vec<String> {
    let compression = either(env, COMPRESSION).filter(|(_, value)| value != "none");
    let compression = compression.map(|(name, value)| {
        format!("{name} is {value:?}; spans are exported uncompressed, as by none")
    });
    let sampler = set(env, "OTEL_TRACES_SAMPLER");
    let unknown = sampler.filter(|(_, value)| !SAMPLERS.contains(&value.as_str()));
    let unknown = unknown.map(|(name, value)| {
        let known = SAMPLERS.join(", ");
        format!("{name} is {value:?}; one of {known} is wanted, and parentbased_always_on is used")
    });
    compression.into_iter().chain(unknown).collect()
}
