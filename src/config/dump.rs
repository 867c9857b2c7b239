//! The effective configuration for people, with secrets as `[redacted]`: for `leafhopper check`.

use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};

use super::{
    model::{Auth, Config, Leaf, Retry},
    values::shown as time,
};
use crate::{domain::outcome::Class, store::connect::Connect};

const REDACTED: &str = "[redacted]";

impl Config {
    /// All that holds, the defaults included, shaped as the file is. No secret is in it.
    #[must_use]
    pub fn redacted(&self) -> Value {
        let leaves: serde_json::Map<String, Value> = self
            .leaves
            .iter()
            .map(|(name, of)| (name.clone(), leaf(of)))
            .collect();
        json!({
            "database": {
                "url": url(&self.database.url),
                "direct_url": self.database.direct_url.as_ref().map(url),
                "pool_size": self.database.pool_size,
            },
            "listen": {
                "address": self.listen.address,
                "admin_token": self.listen.admin_token.as_ref().map(|_| REDACTED),
                "show_bodies": self.listen.show_bodies,
            },
            "dispatch": {
                "poll_interval": time(self.dispatch.poll_interval),
                "lease": time(self.dispatch.lease),
                "shutdown_grace": time(self.dispatch.shutdown_grace),
                "stuck_after": time(self.dispatch.stuck_after),
                "state_dir": self.dispatch.state_dir,
            },
            "retention": {
                "finished": retention(self.retention.finished),
                "results": retention(self.retention.results),
                "result_bodies": retention(self.retention.result_bodies),
            },
            "leaf": leaves,
        })
    }
}

fn leaf(leaf: &Leaf) -> Value {
    let outcome: serde_json::Map<String, Value> = leaf
        .rules
        .outcome
        .iter()
        .map(|(status, class)| (status.to_string(), json!(Class::as_str(*class))))
        .collect();
    let auth = leaf.auth.as_ref().map(|auth| match auth {
        Auth::Bearer(_) => json!({ "bearer": REDACTED }),
        Auth::Basic(_) => json!({ "basic": REDACTED }),
        Auth::Header { name, value: _ } => json!({ "header": { "name": name, "value": REDACTED } }),
    });
    json!({
        "base_url": leaf.base_url.as_str(),
        "auth": auth,
        "credentials": leaf.credentials_dir.as_ref().map(|dir| json!({
            "dir": dir,
            "names": leaf.secrets.names(),
        })),
        "timeout": time(leaf.timeout),
        "connect_timeout": time(leaf.connect_timeout),
        "concurrency": leaf.concurrency,
        "rate": leaf.rate.map(|rate| format!("{rate}/s")),
        "exists_on": leaf.rules.exists_on,
        "outcome": outcome,
        "in_doubt": leaf.in_doubt,
        "retry": retry(&leaf.retry),
        "max_response_bytes": format!("{}B", leaf.max_response_bytes),
        "keep_headers": leaf.keep_headers,
        "after_failed_head": leaf.after_failed_head,
        "tls": { "ca": leaf.tls.ca, "client": leaf.tls.client },
        "http2": leaf.http2,
        "proxy": leaf.proxy.as_ref().map(reqwest::Url::as_str),
        "probe": leaf.probe.as_ref().map(|probe| json!({
            "method": probe.method,
            "path": probe.path,
            "found": probe.found,
            "settle": time(probe.settle),
            "max_probes": probe.max_probes,
        })),
        "compensate": leaf.compensate.as_ref().map(|compensate| json!({
            "method": compensate.method,
            "path": compensate.path,
            "body": compensate.body,
        })),
        "idempotency": leaf.idempotency.as_ref().map(|idempotency| json!({
            "header": idempotency.header,
            "format": idempotency.format,
            "window": time(idempotency.window),
            "replays": idempotency.replays,
        })),
    })
}

fn retry(retry: &Retry) -> Value {
    json!({
        "initial": time(retry.schedule.initial),
        "max": time(retry.schedule.max),
        "multiplier": retry.schedule.multiplier,
        "jitter": retry.schedule.jitter,
        "max_attempts": retry.max_attempts,
        "give_up_after": time(retry.give_up_after),
        "retry_after_max": time(retry.retry_after_max),
    })
}

fn url(url: &SecretString) -> String {
    Connect::parse(url).map_or_else(
        |_unreadable| REDACTED.to_owned(),
        |connect| connect.to_string(),
    )
}

fn retention(kept: Option<Duration>) -> String {
    kept.map_or_else(|| "forever".to_owned(), time)
}
