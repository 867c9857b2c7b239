//! What one leaf's settings demand of each other, with the consequence spelt out.

use super::{
    model::{Auth, IdempotencyFormat, Leaf, Signing},
    section::Section,
    transport, values,
};
use crate::domain::{decision::Policy, outcome::Class, signature::WEBHOOK_ID};

/// Checks one leaf as a whole.
pub(super) fn check(section: &Section<'_>, leaf: &Leaf) {
    response(section, leaf);
    doubt(section, leaf);
    idempotency(section, leaf);
    signing(section, leaf);
    transport::check(section, leaf);
}

fn response(section: &Section<'_>, leaf: &Leaf) {
    // A bytea or a jsonb ends at 1 GiB.
    const MOST: usize = 256 << 20;
    const LEAST_MEMORY: usize = 1 << 20;
    const MOST_MEMORY: usize = 64 << 30;
    section.check(
        "max_response_bytes",
        (1..=MOST).contains(&leaf.max_response_bytes),
        "is out of range; 1B to 256MiB",
    );
    section.check(
        "body_memory",
        (LEAST_MEMORY..=MOST_MEMORY).contains(&leaf.body_memory),
        "is out of range; 1MiB to 64GiB",
    );
}

fn doubt(section: &Section<'_>, leaf: &Leaf) {
    // Of a faulty probe it is enough to hear what is wrong with it.
    let has_probe = section.gives("probe");
    let dedups = section.gives("idempotency");
    section.check(
        "exists_on",
        has_probe || leaf.rules.exists_on.is_empty(),
        format!(
            "needs [leaf.{}.probe]: that something exists is not yet that it is ours, so what \
             exists has to be asked for",
            leaf.name
        ),
    );
    for (status, class) in &leaf.rules.outcome {
        if leaf.rules.exists_on.contains(status) {
            section.fault(
                "outcome",
                format!("{status} is named by exists_on too; say it once"),
            );
        }
        section.check(
            "outcome",
            *class != Class::Exists || has_probe,
            format!(
                "{status} = \"exists\" needs [leaf.{}.probe], as exists_on does",
                leaf.name
            ),
        );
    }
    match leaf.in_doubt {
        Some(Policy::Resend) => section.check(
            "in_doubt",
            dedups,
            format!(
                "\"resend\" needs [leaf.{}.idempotency]: without it only idempotent methods can \
                 be sent again safely, and \
                 they are already; a POST would happen twice. Leave in_doubt out",
                leaf.name
            ),
        ),
        Some(Policy::Probe) if !has_probe => section.warn(
            "in_doubt",
            "is \"probe\", but the leaf has no probe; a call without one of its own is parked",
        ),
        Some(Policy::Probe | Policy::Park) | None => {}
    }
    if leaf
        .probe
        .as_ref()
        .is_some_and(|probe| probe.found.is_none())
    {
        section.warn(
            "probe",
            "has no `found`: what is there is adopted without knowing that it is the call's own, and \
             never undone by itself",
        );
    }
    let policy = Policy::for_call(leaf.in_doubt, has_probe, dedups, "POST");
    if policy == Policy::Park && !leaf.rules.outcome.contains_key(&503) {
        section.warn(
            "outcome",
            "calls in doubt are parked, and a 503 without Retry-After leaves a call in doubt; if \
             this leaf refuses before it \
             works, say outcome = { 503 = \"retry\" }, else 503 = \"in_doubt\"",
        );
    }
}

fn idempotency(section: &Section<'_>, leaf: &Leaf) {
    let Some(idempotency) = &leaf.idempotency else {
        return;
    };
    section.check(
        "idempotency",
        idempotency.window >= leaf.timeout,
        format!(
            "window ({}) is shorter than timeout ({}): the leaf would forget a key while its \
             request still runs, and a \
             resend would happen twice",
            values::shown(idempotency.window),
            values::shown(leaf.timeout)
        ),
    );
    section.check(
        "idempotency",
        auth_header(leaf) != Some(idempotency.header.as_str()),
        format!(
            "header {:?} is the one that `auth` uses",
            idempotency.header
        ),
    );
}

fn auth_header(leaf: &Leaf) -> Option<&str> {
    match leaf.auth.as_ref()? {
        Auth::Bearer(_) | Auth::Basic(_) => Some("authorization"),
        Auth::Header { name, .. } => Some(name),
    }
}

fn signing(section: &Section<'_>, leaf: &Leaf) {
    for name in leaf.signing.iter().flat_map(Signing::headers) {
        section.check(
            "signing",
            auth_header(leaf) != Some(name),
            format!("header {name:?} is the one that `auth` uses"),
        );
        let Some(idempotency) = &leaf.idempotency else {
            continue;
        };
        // A receiver that dedups by Standard Webhooks' id: both say the same.
        let shared = name == WEBHOOK_ID && idempotency.format == IdempotencyFormat::Raw;
        section.check(
            "signing",
            idempotency.header != name || shared,
            if name == WEBHOOK_ID {
                "header \"webhook-id\" is not quoted when it is signed; leave idempotency.format out".to_owned()
            } else {
                format!("header {name:?} is the one that `idempotency` uses")
            },
        );
    }
}
