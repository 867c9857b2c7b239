//! The parts of the compose file that are scripts and configuration, on a PostgreSQL of their own: passwords, roles,
//! migration, the app, the sidecar.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use leafhopper::demo::cluster::{Cluster, Durability};

use super::{read, root};
use crate::harness::{
    app::App, database, folder::Folder, leaf::Leaf, sidecar::Config, wait::until,
};

/// Killed with this value.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A script of the compose file's folder, as its image would run it, with PostgreSQL's programs on the path.
fn script(name: &str, cluster: &Cluster, secrets: &Path) -> Command {
    let psql = database::options(Durability::Unsynced)
        .binaries
        .program("psql");
    let path = format!("{}:/usr/bin:/bin", psql.parent().unwrap().display());
    let mut command = Command::new("bash");
    command
        .arg(root().join("deploy/compose").join(name))
        .env_clear()
        .env("PATH", path)
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", cluster.port().to_string())
        .env("SECRETS", secrets)
        .env("PASSWORD_FILE", secrets.join("app_password"))
        .env("PAUSE", "0.1")
        .stdin(Stdio::null());
    command
}

#[tokio::test]
async fn an_order_of_the_app_is_confirmed_by_the_shop() {
    let folder = Folder::new();
    let copy = folder.write("secrets.sh", &read("deploy/compose/secrets.sh"));
    for _ in 0..2 {
        let made = Command::new("sh").arg(&copy).output().unwrap();
        assert!(made.status.success(), "{made:#?}");
    }
    let secrets = folder.path().join("secrets");
    let secret = |name: &str| std::fs::read_to_string(secrets.join(name)).unwrap();
    assert_eq!(secret("admin_token").len(), 48);

    let start = || Cluster::start(database::options(Durability::Unsynced)).unwrap();
    let cluster = tokio::task::spawn_blocking(start).await.unwrap();
    cluster.create_database("app", None).unwrap();
    let url = cluster.url("app");
    let (_, rest) = url.split_once("postgres:").unwrap();
    let password = rest.trim_start_matches("//postgres:").split('@').next();
    let mut roles = script("roles.sh", &cluster, &secrets);
    let roles = roles.env("PGPASSWORD", password.unwrap()).output().unwrap();
    assert!(roles.status.success(), "{roles:#?}");

    let server = format!("@127.0.0.1:{}/", cluster.port());
    let connect_as = |name: &str| {
        let url = secret(name).replace("@database/", &server);
        folder.write("database_url", &url);
    };
    connect_as("owner_url");
    let leaf = Leaf::start().await;
    let text = read("deploy/compose/leafhopper.toml");
    let text = text.replace(
        "/run/secrets/database_url",
        folder.path().join("database_url").to_str().unwrap(),
    );
    let text = text.replace("/run/secrets", secrets.to_str().unwrap());
    let text = text.replace("/var/lib/leafhopper", folder.path().to_str().unwrap());
    let text = text.replace("0.0.0.0:9187", "127.0.0.1:0");
    let starter = Config::new("").sidecar();
    starter.rewrite_text(&text.replace("http://shop", &leaf.url()));
    let compose = read("deploy/compose/compose.yaml");
    let words = compose.split_once("command: [migrate, ").unwrap().1;
    let words = words.split_once(']').unwrap().0.split(", ");
    let words: Vec<&str> = std::iter::once("migrate").chain(words).collect();
    let migrated = starter.command(&words).await;
    assert!(migrated.status.success(), "{migrated:#?}");
    connect_as("database_url");
    let sidecar = starter.start().await;

    let mut orders = script("app/orders.sh", &cluster, &secrets);
    let _orders = Program(orders.spawn().unwrap());
    let app = App::connect(&url).await;
    until("two orders are confirmed", async || {
        let sql = "SELECT o.id FROM orders o JOIN leafhopper.result r ON r.key = 'order:' || o.id";
        let confirmed = app.rows(sql).await;
        if confirmed.len() >= 2 {
            Ok(())
        } else {
            Err(confirmed)
        }
    })
    .await;
    assert_eq!(leaf.all_requests()[0].path, "/orders");
    drop(sidecar);
}
