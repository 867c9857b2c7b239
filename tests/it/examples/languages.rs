//! One test for each program.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
};

use super::{
    Front, Reaction, program, sells_sites,
    shop::{Shop, example},
    with,
};
use crate::{
    clients::{EXAMPLES, LOCAL, missing, node_with, python_with, runs},
    harness::{Bed, folder::Folder},
};

/// Debian's place of JDBC's driver.
const JDBC: &str = "/usr/share/java/postgresql.jar";

/// Debian's place of Go's packages.
const GO: &str = "/usr/share/gocode";

/// Runs the project's application as a server of WSGI does, on a port that is free.
const SERVE: &str = "from wsgiref.simple_server import make_server\n\
                     from config.wsgi import application\n\
                     server = make_server('127.0.0.1', 0, application)\n\
                     print(server.server_port, flush=True)\n\
                     server.serve_forever()";

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

fn file(path: &str) -> String {
    format!("{EXAMPLES}/{path}")
}

#[tokio::test]
async fn python_with_psycopg_listens() {
    if let Some(python) = python_with("psycopg") {
        let app = file("python/app_psycopg.py");
        program(words([&python, &app]), Reaction::Listen).await;
    }
}

#[tokio::test]
async fn python_with_sqlalchemy_polls() {
    if let Some(python) = python_with("psycopg, sqlalchemy") {
        let app = file("python/app_sqlalchemy.py");
        program(words([&python, &app]), Reaction::Poll).await;
    }
}

#[tokio::test]
async fn python_with_django_polls() {
    let Some(python) = python_with("psycopg, django") else {
        return;
    };
    let manage = words([&python, &file("django/manage.py")]);
    let shop = Shop::new().await;
    shop.run(&with(&manage, ["migrate"])).await.unwrap();
    // What the models say is what the migrations make.
    let complete = with(&manage, ["makemigrations", "--check", "--dry-run"]);
    shop.run(&complete).await.unwrap();
    let follower = shop.start(&with(&manage, ["follow"]));
    let mut server = shop.program(&words([&python, "-c", SERVE]));
    let (port, server) = serves(server.current_dir(file("django"))).await;
    let url = format!("http://127.0.0.1:{port}/sites/");
    sells_sites(&shop, &Front::Http(url.clone()), Reaction::Poll).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let shown = client.get(url).send().await.unwrap().text().await.unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let alpha = json!({ "id": 1, "name": "alpha", "status": "live", "remote_id": "h-alpha", "call": "confirmed" });
    assert_eq!(shown["sites"][0], alpha);
    drop((server, follower));
    shop.close().await;
}

/// Starts a server; gives the first line that it says, which has its port.
async fn serves(server: &mut tokio::process::Command) -> (String, Child) {
    server.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = server.kill_on_drop(true).spawn().unwrap();
    let mut port = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    stdout.read_line(&mut port).await.unwrap();
    (port.trim().to_owned(), server)
}

#[tokio::test]
async fn leaf_py_stands_in_for_the_three_leaves() {
    let Some(python) = python_with("psycopg") else {
        return;
    };
    let mut leaf = tokio::process::Command::new(&python);
    let (leaf, server) = serves(leaf.args([&file("leaf.py"), "0"])).await;
    let shop = Shop::of(Bed::new().await, &leaf).await;
    shop.app.execute(&example("app.sql")).await;
    let app = words([&python, &file("python/app_psycopg.py")]);
    let follower = shop.start(&with(&app, ["follow"]));
    for (ask, status) in [
        (vec!["create", "acme"], "live"),
        (vec!["launch", "globex", "5"], "live"),
        (vec!["launch", "initech", "500"], "failed"),
    ] {
        shop.run(&with(&app, ask.clone())).await.unwrap();
        shop.until_site(ask[1], status).await;
    }
    drop((server, follower));
    shop.close().await;
}

#[tokio::test]
async fn node_with_pg_listens() {
    if let Some(node) = node_with("pg") {
        program(words([&node, &file("node/app_pg.js")]), Reaction::Listen).await;
    }
}

#[tokio::test]
async fn node_with_knex_polls() {
    if let Some(node) = node_with("knex") {
        program(words([&node, &file("node/app_knex.js")]), Reaction::Poll).await;
    }
}

#[tokio::test]
async fn php_with_pdo_has_a_trigger() {
    let has_pdo = "exit(extension_loaded('pdo_pgsql') ? 0 : 1);";
    if !runs(Command::new("php").args(["-r", has_pdo])) {
        missing("PHP with pdo_pgsql");
        return;
    }
    program(words(["php", &file("php/app.php")]), Reaction::Trigger).await;
}

#[tokio::test]
async fn ruby_with_pg_has_a_trigger() {
    if !runs(Command::new("ruby").args(["-e", "require 'pg'"])) {
        missing("Ruby with pg");
        return;
    }
    program(words(["ruby", &file("ruby/app.rb")]), Reaction::Trigger).await;
}

#[tokio::test]
async fn java_with_jdbc_listens() {
    if !Path::new(JDBC).exists() || !runs(Command::new("javac").arg("-version")) {
        missing("a JDK with PostgreSQL's JDBC driver");
        return;
    }
    let classes = Folder::new();
    let mut compiler = Command::new("javac");
    compiler.args(["-Xlint:all", "-Werror", "-cp", JDBC, "-d"]);
    compiler.arg(classes.path()).arg(file("java/App.java"));
    builds(compiler).await;
    let path = format!("{JDBC}:{}", classes.path().display());
    let quick = "-XX:TieredStopAtLevel=1";
    program(
        words(["java", quick, "-cp", &path, "App"]),
        Reaction::Listen,
    )
    .await;
}

#[tokio::test]
async fn go_with_pq_listens() {
    let pq = format!("{GO}/src/github.com/lib/pq");
    if !Path::new(&pq).exists() || !runs(Command::new("go").arg("version")) {
        missing("Go with lib/pq");
        return;
    }
    let folder = Folder::new();
    let app = folder.path().join("app");
    let mut compiler = Command::new("go");
    // Debian's packages are for a GOPATH; go.mod is for those who get them from elsewhere.
    compiler.envs([("GO111MODULE", "off"), ("GOPATH", GO), ("CGO_ENABLED", "0")]);
    compiler.env("GOCACHE", format!("{LOCAL}/go-cache"));
    compiler.args(["build", "-o"]).arg(&app).arg(".");
    compiler.current_dir(file("go"));
    builds(compiler).await;
    program(words([app.to_str().unwrap()]), Reaction::Listen).await;
}

#[tokio::test]
async fn rust_with_tokio_postgres_listens() {
    rust("app-tokio-postgres").await;
}

#[tokio::test]
async fn rust_with_sqlx_listens() {
    rust("app-sqlx").await;
}

async fn rust(name: &str) {
    let target = format!("{LOCAL}/rust");
    if !Path::new(&target).exists() {
        missing("what the examples in Rust depend on");
        return;
    }
    let mut compiler = Command::new("cargo");
    compiler.args(["build", "--quiet", "--locked", "--offline", "--bin", name]);
    let manifest = file("rust/Cargo.toml");
    compiler.args(["--target-dir", &target, "--manifest-path", &manifest]);
    builds(compiler).await;
    let app = format!("{target}/debug/{name}");
    program(words([&app]), Reaction::Listen).await;
}

async fn builds(mut compiler: Command) {
    let built = tokio::task::spawn_blocking(move || compiler.output()).await;
    let built = built.unwrap().unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
}

#[test]
fn lock_files_name_no_place_but_the_registries_own() {
    let crates = "registry+https://github.com/rust-lang/crates.io-index";
    for (lock, names, own) in [
        ("rust/Cargo.lock", "source = \"", crates),
        (
            "node/package-lock.json",
            "\"resolved\": \"",
            "https://registry.npmjs.org/",
        ),
    ] {
        let text = example(lock);
        for named in text.split(names).skip(1) {
            let named = named.split('"').next().unwrap();
            assert!(named.starts_with(own), "{lock}: {named}");
        }
    }
}
