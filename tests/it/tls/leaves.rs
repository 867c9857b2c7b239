//! Leaves with authorities of their own and client certificates; files that change; names that lead inside.

use serde_json::Value;

use super::{
    authority::{Authority, Pair},
    front::Front,
};
use crate::harness::{
    Bed,
    app::keyed,
    folder::Folder,
    sidecar::{Config, Sidecar},
    wait::until,
};

/// A leaf behind TLS, and the files by which a sidecar reaches it.
struct Shelf {
    bed: Bed,
    front: Front,
    folder: Folder,
}

impl Shelf {
    async fn new(authority: &Authority, clients: &Authority) -> Self {
        let bed = Bed::new().await;
        let front = Front::of(&bed.leaf.url(), authority, clients).await;
        let shelf = Self {
            bed,
            front,
            folder: Folder::new(),
        };
        shelf.folder.write("ca", &authority.pem());
        shelf.write_pair(&clients.signs("sidecar"));
        shelf
    }

    fn write_pair(&self, pair: &Pair) {
        self.folder.write("cert", &pair.cert_pem);
        self.folder.write("key", &pair.key_pem);
    }

    fn config(&self) -> Config {
        let file = |name: &str| self.folder.path().join(name);
        let tls = format!(
            "tls = {{ ca = {:?}, cert = {:?}, key = {:?} }}",
            file("ca"),
            file("cert"),
            file("key")
        );
        Config::new(&self.bed.database.url).leaf("leaf", &self.front.url(), &tls)
    }

    async fn confirms(&self, key: &str) {
        let id = self.bed.app.insert(keyed("leaf", key)).await;
        self.bed.app.until_state(id, "confirmed").await;
    }
}

async fn refused(sidecar: &Sidecar, wanted: f64) {
    until("the metric says whether it is refused", async || {
        let found = sidecar.metric("leafhopper_config_reload_failed", &[]).await;
        match (found - wanted).abs() < 0.1 {
            true => Ok(()),
            false => Err((found, sidecar.lines())),
        }
    })
    .await;
}

#[tokio::test]
async fn files_that_change_are_taken_up_without_a_signal() {
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let shelf = Shelf::new(&ours, &clients).await;
    let sidecar = shelf.config().start().await;
    shelf.confirms("before").await;

    // The leaf moves to other authorities. Half of what belongs to that is refused, and the former stays.
    let (next, others) = (Authority::new("next"), Authority::new("others"));
    shelf.front.exchange(&next, &others);
    let pair = others.signs("sidecar");
    shelf.folder.write("cert", &pair.cert_pem);
    refused(&sidecar, 1.0).await;
    until("it is told once", async || {
        let log = sidecar.log();
        let told = log.iter().filter(|line| {
            let message = line["message"].as_str().unwrap_or_default();
            line["level"] == "ERROR" && message.contains("leaf.leaf.tls")
        });
        if told.count() == 1 { Ok(()) } else { Err(log) }
    })
    .await;
    let (status, page) = sidecar.get("/").await;
    assert_eq!(status, 200);
    assert!(page.contains("Changed certificates of a leaf"), "{page}");

    shelf.folder.write("ca", &next.pem());
    shelf.folder.write("key", &pair.key_pem);
    refused(&sidecar, 0.0).await;
    shelf.confirms("after").await;
    assert_eq!(shelf.bed.leaf.effects("before"), 1);
    assert_eq!(shelf.bed.leaf.effects("after"), 1);
}

async fn checked(config: &Config) -> (String, bool) {
    let output = config.sidecar().command(&["check", "--json"]).await;
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let found = findings.iter().find(|finding| finding["check"] == "leaf");
    let finding = found.unwrap_or_else(|| panic!("{findings:#?}"));
    let message = finding["message"].as_str().unwrap().to_owned();
    (message, finding["status"] == "ok")
}

#[tokio::test]
async fn check_says_whether_tls_comes_about() {
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let shelf = Shelf::new(&ours, &clients).await;
    let (message, ok) = checked(&shelf.config()).await;
    assert!(ok && message.contains("with TLSv1.3"), "{message}");
    shelf.folder.write("ca", &clients.pem());
    let (message, ok) = checked(&shelf.config()).await;
    assert!(!ok && message.contains("(leaf.leaf.tls.ca)"), "{message}");
    shelf.folder.write("ca", &ours.pem());
    let other = clients.signs("another");
    shelf.folder.write("key", &other.key_pem);
    let (message, ok) = checked(&shelf.config()).await;
    assert!(!ok && message.contains("leaf.leaf.tls"), "{message}");
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_on_request() {
    let bed = Bed::new().await;
    let inside = bed.leaf.url().replace("127.0.0.1", "localhost");
    let config = |word: &str| {
        let line = format!("private_addresses = {word:?}");
        Config::new(&bed.database.url).leaf("leaf", &inside, &line)
    };
    let sidecar = config("refuse").start().await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    until("the call says why it is not sent", async || {
        let call = bed.app.call(id).await;
        let error = call["last_error"].as_str().unwrap_or_default();
        match error.contains("no public address") && call["state"] == "pending" {
            true => Ok(()),
            false => Err(call),
        }
    })
    .await;
    assert_eq!(bed.leaf.all_requests().len(), 0);
    let (message, ok) = checked(&config("refuse")).await;
    assert!(!ok && message.contains("no public address"), "{message}");
    let (message, ok) = checked(&config("allow")).await;
    assert!(ok, "{message}");
    // Nothing was executed, and no attempt was spent: it goes as soon as it may.
    sidecar.rewrite(&config("allow"));
    sidecar.signal(rustix::process::Signal::HUP);
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.leaf.effects("k"), 1);

    let literal = Config::new(&bed.database.url).leaf(
        "leaf",
        &bed.leaf.url(),
        "private_addresses = \"refuse\"",
    );
    let output = literal.sidecar().command(&["check", "--json"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("base_url is not a public one"), "{text}");
}
