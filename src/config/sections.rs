//! The tables of the file that are not a leaf's.

use std::{net::SocketAddr, time::Duration};

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    Env,
    model::{Database, Dispatch, Listen, Retry},
    secrets::fits_header,
    section::Section,
    values,
};
use crate::{domain::schedule::Schedule, store::connect::Connect};

/// `[database]`
pub(super) fn database(root: &Section<'_>, env: Env<'_>) -> Database {
    let section = root.table_or_default("database");
    let from_env = env("DATABASE_URL").filter(|url| !url.is_empty());
    let in_file = section.gives("url");
    // Read even where the environment's is used: what is wrong with it is still wrong.
    let from_file = section.string_or_secret("url", env);
    let direct_url = section.string_or_secret("direct_url", env);
    let url = match from_env {
        Some(url) => {
            let url = SecretString::from(url);
            match Connect::parse(&url) {
                Ok(connect) => warn_each(&section, "url", &connect),
                Err(problem) => {
                    section.fault("url", format!("the environment's DATABASE_URL: {problem}"));
                }
            }
            url
        }
        None => {
            if let Some(url) = &from_file {
                check_url(&section, "url", url);
            } else if !in_file {
                section.fault(
                    "url",
                    "missing; write url = \"postgres://user@host/database\", or set DATABASE_URL",
                );
            }
            from_file.unwrap_or_default()
        }
    };
    if let Some(url) = &direct_url {
        check_url(&section, "direct_url", url);
    }
    let pool_size = section.must("pool_size", values::positive);
    section.check(
        "pool_size",
        pool_size <= 1000,
        format!("{pool_size} connections are more than any PostgreSQL serves well; 1 to 1000"),
    );
    section.finish();
    Database {
        url,
        direct_url,
        pool_size: pool_size as usize,
    }
}

fn check_url(section: &Section<'_>, key: &'static str, url: &SecretString) {
    match Connect::parse(url) {
        Ok(connect) => {
            warn_each(section, key, &connect);
            let in_file = section.get(key, |value| Ok(value.is_str())) == Some(true);
            if in_file && connect.has_password() {
                section.warn(
                    key,
                    "holds a password in clear; DATABASE_URL or { file = \"/path\" } keeps it out \
                     of the file",
                );
            }
        }
        Err(problem) => section.fault(key, problem.to_string()),
    }
}

fn warn_each(section: &Section<'_>, key: &str, connect: &Connect) {
    for warning in &connect.warnings {
        section.warn(key, warning);
    }
}

/// `[listen]`
pub(super) fn listen(root: &Section<'_>, env: Env<'_>) -> Listen {
    let section = root.table_or_default("listen");
    let address = section.must("address", |value| {
        let text = values::string(value)?;
        text.parse::<SocketAddr>().map_err(|_source| {
            format!("{text:?} is not an address; \"127.0.0.1:9187\" or \"[::1]:9187\" is")
        })
    });
    let admin_token = section
        .secret("admin_token", env, fits_header)
        .map(|(_source, token)| token);
    if admin_token.is_none() && !address.ip().is_loopback() {
        section.warn(
            "address",
            format!(
                "{address} can be reached from elsewhere; without an admin_token every action \
             and every read of rows is refused"
            ),
        );
    }
    if admin_token
        .as_ref()
        .is_some_and(|token| token.expose_secret().len() < 16)
    {
        section.warn(
            "admin_token",
            "is shorter than 16 characters and can be guessed",
        );
    }
    let hosts = section.must("hosts", values::host_names);
    let show_bodies = section.must("show_bodies", values::boolean);
    section.finish();
    Listen {
        address,
        admin_token,
        hosts,
        show_bodies,
    }
}

/// `[dispatch]`
pub(super) fn dispatch(root: &Section<'_>) -> Dispatch {
    const LEASE: std::ops::RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_mins(10);
    let section = root.table_or_default("dispatch");
    let dispatch = Dispatch {
        poll_interval: section.must("poll_interval", values::some_time),
        lease: section.must("lease", values::some_time),
        shutdown_grace: section.must("shutdown_grace", values::duration),
        stuck_after: section.must("stuck_after", values::some_time),
        state_dir: section.get("state_dir", values::folder),
    };
    section.check(
        "lease",
        LEASE.contains(&dispatch.lease),
        format!(
            "{} is out of range; 1s to 10m. A shorter one takes a slow instance for dead, a \
             longer one leaves a dead \
             instance's calls in doubt for as long",
            values::shown(dispatch.lease)
        ),
    );
    section.check(
        "poll_interval",
        dispatch.poll_interval < dispatch.lease,
        format!(
            "{} is not shorter than dispatch.lease ({}); between two looks the lease would run out",
            values::shown(dispatch.poll_interval),
            values::shown(dispatch.lease)
        ),
    );
    section.finish();
    dispatch
}

/// `[retry]`, or a leaf's `retry`, which overrides single settings of `base`.
pub(super) fn retry(section: &Section<'_>, base: Option<&Retry>) -> Retry {
    let retry = match base {
        None => Retry {
            schedule: Schedule {
                initial: section.must("initial", values::some_time),
                max: section.must("max", values::some_time),
                multiplier: section.must("multiplier", values::number),
                jitter: section.must("jitter", values::number),
            },
            max_attempts: section.must("max_attempts", values::positive),
            give_up_after: section.must("give_up_after", values::some_time),
            retry_after_max: section.must("retry_after_max", values::some_time),
        },
        Some(base) => {
            let time = |key, base| section.get(key, values::some_time).unwrap_or(base);
            let number = |key, base| section.get(key, values::number).unwrap_or(base);
            Retry {
                schedule: Schedule {
                    initial: time("initial", base.schedule.initial),
                    max: time("max", base.schedule.max),
                    multiplier: number("multiplier", base.schedule.multiplier),
                    jitter: number("jitter", base.schedule.jitter),
                },
                max_attempts: section
                    .get("max_attempts", values::positive)
                    .unwrap_or(base.max_attempts),
                give_up_after: time("give_up_after", base.give_up_after),
                retry_after_max: time("retry_after_max", base.retry_after_max),
            }
        }
    };
    let schedule = &retry.schedule;
    // A leaf that says nothing about it repeats no fault of `[retry]`.
    let says = |keys: &[&'static str]| base.is_none() || keys.iter().any(|key| section.gives(key));
    if says(&["jitter"]) && !(0.0..=1.0).contains(&schedule.jitter) {
        section.fault(
            "jitter",
            format!(
                "{} is out of range; 0 to 1, a part of the delay",
                schedule.jitter
            ),
        );
    }
    if says(&["multiplier"]) && schedule.multiplier < 1.0 {
        section.fault(
            "multiplier",
            format!(
                "{} is less than 1; delays would shrink",
                schedule.multiplier
            ),
        );
    }
    if says(&["initial", "max"]) && schedule.initial > schedule.max {
        let key = if section.gives("initial") {
            "initial"
        } else {
            "max"
        };
        section.fault(
            key,
            format!(
                "initial ({}) is longer than max ({}); every delay would be max",
                values::shown(schedule.initial),
                values::shown(schedule.max)
            ),
        );
    }
    retry
}
