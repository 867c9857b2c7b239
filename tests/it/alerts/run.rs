//! Two sidecars of one database, scraped by a Prometheus: how they are started, and all that can go wrong.

use std::{collections::BTreeSet, path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::json;
use uuid::Uuid;

use super::{
    RULES,
    prometheus::{Alert, Prometheus},
};
use crate::harness::{
    Bed,
    app::{Call, call},
    folder::Folder,
    leaf::{Gate, Rule},
    proxy::Proxy,
    sidecar::{Config, Sidecar},
    wait::until_within,
};

/// Prometheus needs two scrapes for a rate, and each of them waits for its turn.
pub(super) const LIMIT: Duration = Duration::from_secs(40);

/// Two sidecars of one database, the second one behind a proxy.
pub(super) struct Run {
    pub(super) sidecar: Sidecar,
    pub(super) second: Sidecar,
    pub(super) way: Proxy,
    pub(super) prometheus: Prometheus,
    pub(super) config: Config,
    pub(super) folder: Folder,
    pub(super) bed: Bed,
}

impl Run {
    pub(super) async fn start(program: &Path) -> Self {
        let bed = Bed::new().await;
        let folder = Folder::new();
        folder.write("token", "old");
        let url = bed.leaf.url();
        let token = format!(
            "auth = {{ bearer = {{ file = {:?} }} }}\nretry = {{ initial = \"50ms\", max = \"1s\" }}",
            folder.path().join("token")
        );
        let undo = "compensate = { method = \"DELETE\", path = \"/undo/{{ call.key }}\" }";
        let leaves = |config: Config| {
            config
                .leaf("git", &url, "")
                .leaf("silent", &url, "")
                .leaf(
                    "vague",
                    &url,
                    "retry = { initial = \"50ms\", max = \"1s\" }",
                )
                .leaf("plain", &url, "")
                .leaf("token", &url, &token)
                .leaf("full", &url, "concurrency = 1\ntimeout = \"10m\"")
                .leaf("sour", &url, "")
                .leaf("ordered", &url, "after_failed_head = \"hold\"")
                .leaf("undo", &url, undo)
                .leaf("idle", &url, "")
                .leaf("late", &url, "retry = { initial = \"50ms\", max = \"1s\" }")
                .probe("git", "settle = \"0s\"")
                .toml("[leaf.vague.probe]\npath = \"/vague\"\nmax_probes = 1000\n")
                .toml("[leaf.plain.probe]\npath = \"/effects/{{ call.key }}\"\nsettle = \"0s\"")
                .dispatch("stuck_after = \"1s\"\nlease = \"3s\"")
        };
        let config = leaves(Config::new(&bed.database.url));
        let way = Proxy::in_front_of(&bed.database.url).await;
        let other = leaves(Config::new(&way.url(&bed.database.url)));
        let (sidecar, second) = tokio::join!(config.start(), other.start());
        // What takes minutes and hours is not waited for.
        let rules = RULES
            .lines()
            .filter(|line| !line.trim().starts_with("for: "))
            .collect::<Vec<_>>()
            .join("\n")
            .replace("> 900", "> 1");
        let addresses = [&sidecar, &second].map(|one| one.url("").replace("http://", ""));
        let addresses = [addresses[0].as_str(), addresses[1].as_str()];
        Self {
            prometheus: Prometheus::start(program, &addresses, &rules),
            sidecar,
            second,
            way,
            config,
            folder,
            bed,
        }
    }

    /// A run in which nothing is wrong raises nothing.
    pub(super) async fn until_well(&self) {
        let app = &self.bed.app;
        let id = app.insert(thing("git", "well")).await;
        app.until_state(id, "confirmed").await;
        until_within(LIMIT, "both are scraped", async || {
            let seen = self.prometheus.query("count(leafhopper_build_info)").await;
            match seen {
                Ok(series) if series.iter().any(|(_, number)| *number > 1.5) => Ok(()),
                other => Err(other),
            }
        })
        .await;
        self.until_firing("all is well", &[]).await;
    }

    /// What is not to be answered waits at these gates.
    pub(super) async fn everything_goes_wrong(&self) -> [Gate; 2] {
        let (app, leaf) = (&self.bed.app, &self.bed.leaf);
        let gates = [Gate::closed(), Gate::closed()];
        leaf.on("/silent").resets();
        leaf.on("/vague").method("POST").resets();
        leaf.on("/vague").method("GET").refuses(500);
        leaf.on("/git/lost").times(1).resets();
        leaf.on("/plain").resets();
        leaf.on("/full")
            .waits_before_the_effect(&gates[0])
            .answers(201);
        leaf.on("/late")
            .waits_before_the_answer(&gates[1])
            .answers(201);
        leaf.on("/late").times(1).refuses(429);
        leaf.on("/sour").refuses(422);
        leaf.on("/ordered").refuses(422);
        leaf.on("/undo").method("DELETE").refuses(403);
        leaf.chooses(|request| {
            let new = request.header("authorization") == Some("Bearer new");
            let is_refused = request.path.starts_with("/token") && !new;
            is_refused.then(|| Rule::new().does_nothing().replies(401))
        });
        for call in [
            thing("silent", "parked"),
            thing("vague", "doubtful"),
            thing("git", "lost").path("/git/lost"),
            thing("git", "well"),
            thing("plain", "adopted"),
            thing("token", "refused"),
            thing("full", "first"),
            thing("full", "second"),
            thing("ordered", "head").set("ordering_key", "o"),
            thing("ordered", "behind").set("ordering_key", "o"),
            thing("nowhere", "strayed").path("/things"),
        ] {
            app.insert(call).await;
        }
        for number in 0..15 {
            app.insert(thing("sour", &format!("sour {number}"))).await;
        }
        let paused = self
            .sidecar
            .command(&["pause", "idle", "--reason", "their night"]);
        assert!(paused.await.status.success());
        app.insert(thing("idle", "waiting")).await;

        let batch = Uuid::new_v4();
        let made = app.insert(thing("undo", "made").batch(batch)).await;
        app.until_state(made, "confirmed").await;
        // The batch has ended well, so another one is cancelled.
        let batch = self.unsealed().await;
        let made = app.insert(thing("undo", "stands").batch(batch)).await;
        app.until_state(made, "confirmed").await;
        app.insert(thing("sour", "fails it").batch(batch)).await;
        let forgotten = self.unsealed().await;
        app.insert(thing("git", "of a batch").batch(forgotten))
            .await;

        // The leaf has executed it at the second attempt and is about to say so, when the application says it first, which
        // may have meant the other attempt.
        app.insert(thing("late", "twice")).await;
        gates[1].until_arrived(1).await;
        app.execute("SELECT leafhopper.confirm('late', 'twice', 200)")
            .await;
        gates[1].open();

        self.sidecar
            .rewrite(&self.config.clone().leaf("broken", "no url", ""));
        self.sidecar.signal(Signal::HUP);
        gates
    }

    async fn unsealed(&self) -> Uuid {
        let batch = Uuid::new_v4();
        let sql = format!("INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)");
        self.bed.app.execute(&sql).await;
        batch
    }

    /// Waits until exactly these fire.
    pub(super) async fn until_firing(&self, what: &str, wanted: &[[&str; 4]]) {
        let wanted: BTreeSet<[&str; 4]> = wanted.iter().copied().collect();
        until_within(LIMIT, what, async || {
            let alerts = self.prometheus.alerts().await?;
            let firing: BTreeSet<[&str; 4]> = alerts.iter().map(of_alert).collect();
            if firing == wanted {
                return Ok(());
            }
            let missing = wanted.difference(&firing);
            let surplus = firing.difference(&wanted);
            Err(format!(
                "missing: {:?}, surplus: {:?}",
                missing.collect::<Vec<_>>(),
                surplus.collect::<Vec<_>>()
            ))
        })
        .await;
    }

    /// Waits until none of these fires.
    pub(super) async fn until_gone(&self, names: &[&str]) {
        until_within(LIMIT, "what is mended is no alert", async || {
            let mut alerts = self.prometheus.alerts().await?;
            alerts.retain(|alert| names.contains(&alert.label("alertname")));
            if alerts.is_empty() {
                return Ok(());
            }
            Err(format!("{alerts:#?}"))
        })
        .await;
    }

    /// The alert of that name, for that leaf.
    pub(super) async fn alert(&self, name: &str, leaf: &str) -> Alert {
        // A scrape that fails, as on a busy machine, takes all of them away until the next one.
        until_within(LIMIT, name, async || {
            let alerts = self.prometheus.alerts().await?;
            let mut found = alerts.iter().filter(|alert| {
                alert.is_firing && alert.label("alertname") == name && alert.label("leaf") == leaf
            });
            found.next().cloned().ok_or(format!("{leaf}: {alerts:#?}"))
        })
        .await
    }

    pub(super) async fn until_one(&self, name: &str, severity: &str) {
        until_within(LIMIT, name, async || {
            let alerts = self.prometheus.alerts().await?;
            let mut ours = alerts
                .iter()
                .filter(|alert| alert.label("alertname") == name);
            match (ours.next(), ours.next()) {
                (Some(alert), None) if alert.label("severity") == severity => Ok(()),
                _ => Err(format!("{alerts:#?}")),
            }
        })
        .await;
    }
}

/// A POST to the path of that leaf's name.
fn thing(leaf: &str, key: &str) -> Call {
    call(leaf)
        .path(&format!("/{leaf}"))
        .key(key)
        .body(json!({ "key": key }))
}

fn of_alert(alert: &Alert) -> [&str; 4] {
    ["alertname", "severity", "leaf", "reason"].map(|name| alert.label(name))
}
