//! `[leaf.NAME]`: reads one leaf. What its settings demand of each other is in [`super::leaf_rules`].

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use reqwest::Url;
use secrecy::SecretString;
use toml::de::DeValue;

use super::{
    Env,
    credentials::{Form, LeafSecrets, Ring, SecretSource, Shape},
    defaults, leaf_rules,
    model::{Auth, Idempotency, Leaf, Probe, Retry, Signing},
    secrets::fits_header,
    section::{Section, kind},
    sections, signing, templates, transport, values,
};
use crate::domain::{
    compensation::{Compensate, SPEAKS_OF},
    outcome::{Class, Rules},
};

pub(super) const CLASSES: &[&str] = &["confirmed", "retry", "in_doubt", "exists", "failed"];

/// Reads the leaf `name` of the table `all`; `None` if there is nothing of it to go on with.
pub(super) fn read(
    all: &Section<'_>,
    name: &str,
    value: &DeValue<'_>,
    base: &Retry,
    env: Env<'_>,
) -> Option<Leaf> {
    if !is_name(name) {
        all.fault(
            name,
            format!("{name:?} is no name of a leaf; a-z, 0-9, `_` and `-`, 100 at most"),
        );
    }
    if !value.is_table() {
        all.fault(
            name,
            format!("is {}; a table [leaf.{name}] is wanted", kind(value)),
        );
        return None;
    }
    let section = all.inner(name, defaults::LEAF);
    // Every part is read before the leaf is put together, so that every fault is found.
    let base_url = section.required(
        "base_url",
        "write base_url = \"https://host/path\"",
        values::base_url,
    );
    let (auth, signing, secrets) = secrets(&section, env);
    let timeout = section.must("timeout", values::some_time);
    let leaf = Leaf {
        name: name.to_owned(),
        base_url: base_url.unwrap_or_else(nowhere),
        auth,
        signing,
        secrets: Arc::new(secrets),
        timeout,
        connect_timeout: connect_timeout(&section, timeout),
        concurrency: section.must("concurrency", values::positive),
        rate: section.get("rate", values::rate),
        rules: Rules {
            outcome: outcome(&section),
            verdict: section.get("verdict", templates::expression(&["response"])),
            exists_on: section.must("exists_on", values::statuses),
        },
        in_doubt: section.get("in_doubt", values::word(&["probe", "resend", "park"])),
        retry: retry(&section, base),
        probe: section.table("probe").map(probe),
        compensate: section.table("compensate").map(compensate),
        idempotency: section.table("idempotency").and_then(idempotency),
        max_response_bytes: section.must("max_response_bytes", values::size),
        body_memory: section.must("body_memory", values::size),
        keep_headers: section.must("keep_headers", values::header_names),
        after_failed_head: section.must("after_failed_head", values::word(&["continue", "hold"])),
        tls: section.table("tls").map(transport::tls).unwrap_or_default(),
        http2: section.must("http2", values::word(&["auto", "always", "never"])),
        proxy: section.get("proxy", values::base_url),
        proxy_auth: section
            .table("proxy_auth")
            .and_then(|section| transport::proxy_auth(section, env)),
        private_addresses: section.must("private_addresses", values::word(&["allow", "refuse"])),
    };
    leaf_rules::check(&section, &leaf);
    section.finish();
    Some(leaf)
}

fn is_name(name: &str) -> bool {
    (1..=100).contains(&name.len())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Stands in for a URL that is faulty; the port takes no connections.
fn nowhere() -> Url {
    Url::parse("http://localhost:0/").expect("this is a URL")
}

/// Where only the default is longer than the whole attempt may take, the attempt's limit holds.
fn connect_timeout(section: &Section<'_>, timeout: std::time::Duration) -> std::time::Duration {
    let connect = section.must("connect_timeout", values::some_time);
    if section.gives("connect_timeout") {
        section.check(
            "connect_timeout",
            connect <= timeout,
            format!(
                "{} is longer than timeout ({}), which would always end first, as in doubt",
                values::shown(connect),
                values::shown(timeout)
            ),
        );
    }
    connect.min(timeout)
}

fn retry(section: &Section<'_>, base: &Retry) -> Retry {
    let Some(section) = section.table("retry") else {
        return base.clone();
    };
    let retry = sections::retry(&section, Some(base));
    section.finish();
    retry
}

fn outcome(section: &Section<'_>) -> BTreeMap<u16, Class> {
    let mut outcome = BTreeMap::new();
    let Some(section) = section.table("outcome") else {
        return outcome;
    };
    for (key, value) in section.entries() {
        let status = key.parse().ok().and_then(values::status);
        match (status, values::word(CLASSES)(value)) {
            (Some(status), Ok(class)) => {
                outcome.insert(status, class);
            }
            (None, _) => section.fault(key, format!("{key:?} is no HTTP status; 100 to 599 is")),
            (Some(_), Err(problem)) => section.fault(key, problem),
        }
    }
    outcome
}

/// The leaf's auth and signing, as they are now, and what follows their files.
fn secrets(section: &Section<'_>, env: Env<'_>) -> (Option<Auth>, Option<Signing>, LeafSecrets) {
    let own = section.table("auth").and_then(|section| {
        let auth = auth(&section, env);
        section.finish();
        auth
    });
    let auth = own
        .as_ref()
        .map(|(source, secret)| source.form.auth(secret.clone()));
    let folder = credentials(section);
    if section.gives("credentials") && !section.gives("auth") {
        section.fault(
            "credentials",
            "needs `auth`: a credential's file takes the place of its token, value or \
             user:password, and without `auth` \
             nothing says which. (Secrets that sign belong to `signing.credentials`)",
        );
    }
    let auth_ring = own.map(|own| ring(section, own, folder));
    let mut signing = None;
    let signing_ring = section.table("signing").and_then(|section| {
        let own = signing::read(&section, env);
        let folder = credentials(&section);
        signing = own.as_ref().map(|(source, _secret)| source.form.clone());
        let ring = own.map(|own| ring(&section, own, folder));
        section.finish();
        ring
    });
    (auth, signing, LeafSecrets::new(auth_ring, signing_ring))
}

/// The folder of a table's `credentials`.
fn credentials(section: &Section<'_>) -> Option<PathBuf> {
    let section = section.table("credentials")?;
    let folder = section.required(
        "dir",
        "write credentials = { dir = \"/path\" }",
        values::folder,
    );
    section.finish();
    folder
}

fn ring<F: Form>(
    section: &Section<'_>,
    (source, secret): (SecretSource<F>, SecretString),
    folder: Option<PathBuf>,
) -> Ring<F> {
    let (ring, problems) = Ring::new(source, secret, folder);
    for problem in problems {
        section.fault("credentials", problem);
    }
    ring
}

fn auth(section: &Section<'_>, env: Env<'_>) -> Option<(SecretSource<Shape>, SecretString)> {
    const WANTED: &str = "write one of { bearer = SECRET }, { basic = { user = \"NAME\", password \
     = SECRET } }, \
         { header = { name = \"X-Api-Key\", value = SECRET } }";
    let given = ["bearer", "basic", "header"].map(|key| section.gives(key));
    if given.iter().filter(|given| **given).count() != 1 {
        section.fault("", WANTED);
        return None;
    }
    let (shape, prefix, read) = if section.gives("bearer") {
        let read = section.secret("bearer", env, fits_header);
        (Some(Shape::Bearer), String::new(), read)
    } else if section.gives("basic") {
        let section = section.table("basic")?;
        let (user, read) = transport::user_and_password(&section, env);
        section.finish();
        let prefix = user.map(|user| format!("{user}:")).unwrap_or_default();
        (Some(Shape::Basic), prefix, read)
    } else {
        let section = section.table("header")?;
        let name = section.required("name", "write name = \"X-Api-Key\"", values::header_name);
        require_secret(&section, "value");
        let read = section.secret("value", env, fits_header);
        section.finish();
        (name.map(Shape::Header), String::new(), read)
    };
    let (source, secret) = read?;
    let auth = SecretSource {
        form: shape?,
        source,
        prefix,
    };
    let secret = auth.complete(&secret);
    Some((auth, secret))
}

fn require_secret(section: &Section<'_>, key: &'static str) {
    section.check(
        key,
        section.gives(key),
        "missing; use { env = \"NAME\" } or { file = \"/path\" }",
    );
}

fn probe(section: Section<'_>) -> Probe {
    let probe = Probe {
        method: section.must("method", values::method(&["GET", "HEAD"])),
        path: section
            .required(
                "path",
                "write the path that shows the effect",
                templates::path(&["call"]),
            )
            .unwrap_or_default(),
        found: section.get("found", templates::expression(&["response", "call"])),
        settle: section.must("settle", values::duration),
        max_probes: section.must("max_probes", values::positive),
    };
    section.check(
        "found",
        probe.found.is_none() || probe.method != "HEAD",
        "reads a response whose body HEAD does not bring; use method = \"GET\"",
    );
    section.finish();
    probe
}

fn compensate(section: Section<'_>) -> Compensate {
    let compensate = Compensate {
        method: section
            .required(
                "method",
                "write the method that undoes, such as method = \"DELETE\"",
                values::method(&["POST", "PUT", "PATCH", "DELETE"]),
            )
            .unwrap_or_default(),
        path: section
            .required(
                "path",
                "write the path that undoes",
                templates::path(SPEAKS_OF),
            )
            .unwrap_or_default(),
        body: section.get("body", templates::body(SPEAKS_OF)),
    };
    section.finish();
    compensate
}

fn idempotency(section: Section<'_>) -> Option<Idempotency> {
    let header = section.required(
        "header",
        "write header = \"Idempotency-Key\", or what the leaf calls it",
        values::header_name,
    );
    let window = section.required(
        "window",
        "write how long the leaf remembers a key, such as window = \"24h\"; its documentation says",
        values::some_time,
    );
    let format = section.must("format", values::word(&["raw", "quoted"]));
    let replays = section.must("replays", values::word(&["success", "all"]));
    section.finish();
    Some(Idempotency {
        header: header?,
        format,
        window: window?,
        replays,
    })
}
