//! The app that all examples are, on a database of its own: its role, its tables, and the leaves that it calls.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    clients::{EXAMPLES, node_path},
    harness::{
        Bed,
        app::{App, literal},
        leaf::{Gate, Reply, Request},
        sidecar::{Config, Sidecar},
        wait::until,
    },
};

/// A migrated database with the app's role, a sidecar with the examples' configuration, and one leaf for all three.
pub(super) struct Shop {
    pub(super) sidecar: Sidecar,
    /// The app's role.
    pub(super) role: String,
    /// Its connection string.
    pub(super) url: String,
    /// Its connection.
    pub(super) app: App,
    pub(super) bed: Bed,
}

impl Shop {
    /// Opens it, without the app's own tables.
    pub(super) async fn new() -> Self {
        let bed = Bed::new().await;
        let leaf = bed.leaf.url();
        Self::of(bed, &leaf).await
    }

    /// Opens it; this leaf is called.
    pub(super) async fn of(bed: Bed, leaf: &str) -> Self {
        let mut role = format!("app_of_{}", bed.database.name);
        role.truncate(63);
        let roles = format!(
            "DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN PASSWORD 'of the app'; \
             GRANT CREATE ON SCHEMA public TO {role}"
        );
        bed.app.execute(&roles).await;
        let starter = Config::new("").sidecar();
        starter.rewrite_text(&configuration(&bed, leaf));
        let granted = starter.command(&["migrate", "--grant-app", &role]).await;
        assert!(granted.status.success(), "{granted:?}");
        let mut url = reqwest::Url::parse(&bed.database.url).unwrap();
        url.set_username(&role).unwrap();
        url.set_password(Some("of the app")).unwrap();
        let url = String::from(url);
        Self {
            sidecar: starter.start().await,
            app: App::connect(&url).await,
            role,
            url,
            bed,
        }
    }

    /// With the tables of `app.sql`.
    pub(super) async fn with_tables() -> Self {
        let shop = Self::new().await;
        shop.app.execute(&example("app.sql")).await;
        shop
    }

    /// Closes it: a role belongs to the whole server.
    pub(super) async fn close(mut self) {
        self.sidecar.stop().await;
        let role = &self.role;
        let drop = format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}");
        self.bed.app.execute(&drop).await;
    }

    /// A program that knows the database as the app does; it ends with this value.
    pub(super) fn program(&self, words: &[String]) -> Command {
        let mut program = Command::new(&words[0]);
        program
            .args(&words[1..])
            .env("DATABASE_URL", &self.url)
            // The driver of Go wants TLS otherwise.
            .env("PGSSLMODE", "disable")
            .env("NODE_PATH", node_path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        program
    }

    /// Starts one that goes on.
    pub(super) fn start(&self, words: &[String]) -> Child {
        let mut program = self.program(words);
        program.stdout(Stdio::null()).spawn().unwrap()
    }

    /// Runs one to its end; an `Err` is what it said as it failed.
    pub(super) async fn run(&self, words: &[String]) -> Result<String, String> {
        let output = self.program(words).output().await.unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// What the account has.
    pub(super) async fn credit(&self, credit: u32) {
        let update = format!("UPDATE account SET credit = {credit}");
        self.app.execute(&update).await;
    }

    /// The hosting API answers the next request for a site with that id.
    pub(super) fn makes_the_next_site(&self, id: &str) {
        let site = Reply::json(201, &json!({ "id": id }));
        let sites = self.bed.leaf.on("/hosting/sites").method("POST");
        sites.times(1).answers(site);
    }

    /// The payment provider refuses each charge, once the gate is open.
    pub(super) fn refuses_charges(&self, gate: &Gate) {
        let charges = self.bed.leaf.on("/pay/charges");
        charges.waits_before_the_effect(gate).refuses(402);
    }

    /// Waits until the app says that of a site; gives the row.
    pub(super) async fn until_site(&self, name: &str, status: &str) -> Value {
        let sql = format!("SELECT * FROM site WHERE name = {}", literal(name));
        until(&format!("{name} is {status}"), async || {
            let mut sites = self.app.rows(&sql).await;
            if sites.len() == 1 && sites[0]["status"] == status {
                Ok(sites.remove(0))
            } else {
                let calls = "SELECT id, key, state, reason FROM leafhopper.call ORDER BY id";
                Err((sites, self.app.rows(calls).await))
            }
        })
        .await
    }

    /// The requests with that method to that path that the leaf has got.
    pub(super) fn asked(&self, method: &str, path: &str) -> Vec<Request> {
        let requests = self.bed.leaf.all_requests().into_iter();
        requests
            .filter(|request| request.method == method && request.path == path)
            .collect()
    }
}

/// The text of a file of the examples.
pub(super) fn example(path: &str) -> String {
    std::fs::read_to_string(format!("{EXAMPLES}/{path}"))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The examples' configuration, with this bed's database and this leaf in it.
fn configuration(bed: &Bed, leaf: &str) -> String {
    let mut text = example("leafhopper.toml");
    for (of_the_example, of_the_test) in [
        (
            "postgres://postgres@localhost/app",
            bed.database.url.as_str(),
        ),
        ("127.0.0.1:9187", "127.0.0.1:0"),
        ("http://127.0.0.1:8088", leaf),
    ] {
        assert!(text.contains(of_the_example), "{of_the_example}: {text}");
        text = text.replace(of_the_example, of_the_test);
    }
    text
}
