//! Secrets: none of the configuration reaches the database, a log, a metric, an error text, or another leaf.

mod passwords;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;

use crate::{
    api::Client,
    harness::{
        Bed,
        app::{App, Call, call},
        folder::Folder,
        leaf::{Leaf, Reply},
        sidecar::{Config, LOG_LEVEL, LOUD, Sidecar},
        wait::until,
    },
};

const BEARER: &str = "bearer-7Fq2mZ0xKp";
const FROM_FILE: &str = "file-9Lw4vB1sTn";
const CREDENTIAL: &str = "credential-3Hc8yR5dJe";
const OWN_HEADER: &str = "header-6Xg1uN7aQo";
const PASSWORD: &str = "password-2Vb5kM8wZi";
const ADMIN: &str = "admin-0Sj3fC6hYr-long-enough";

fn to(leaf: &str, key: &str) -> Call {
    call(leaf).key(key).body(json!({ "key": key }))
}

/// Everything that the schema's tables hold, as text.
async fn everything(app: &App) -> String {
    let tables = app
        .rows("SELECT tablename FROM pg_tables WHERE schemaname = 'leafhopper'")
        .await;
    let mut text = String::new();
    for table in tables {
        let name = table["tablename"].as_str().unwrap();
        let sql = format!("SELECT t::text AS row FROM leafhopper.{name} t");
        for row in app.rows(&sql).await {
            text.push_str(row["row"].as_str().unwrap());
            text.push('\n');
        }
    }
    // Bodies that are no JSON are kept as bytes.
    for row in app
        .rows("SELECT encode(body_raw, 'escape') AS raw FROM leafhopper.result WHERE body_raw IS NOT NULL")
        .await
    {
        text.push_str(row["raw"].as_str().unwrap());
    }
    text
}

fn assert_holds_none(place: &str, text: &str, secrets: &[String]) {
    for secret in secrets {
        if let Some(at) = text.find(secret.as_str()) {
            let around = text.get(at.saturating_sub(200)..(at + 100).min(text.len()));
            panic!("{place} holds {secret}: … {around:?}");
        }
    }
}

fn text_of(sidecar: &Sidecar) -> String {
    sidecar
        .log()
        .iter()
        .map(|line| format!("{line}\n"))
        .collect()
}

async fn assert_keeps_to_itself(bed: &Bed, sidecar: &Sidecar, secrets: &[String]) {
    assert_holds_none("the log", &text_of(sidecar), secrets);
    assert_holds_none("the database", &everything(&bed.app).await, secrets);
    let client = Client::new(sidecar).with_token(ADMIN);
    for path in ["/metrics", "/readyz", "/livez", "/", "/api/v1/calls"] {
        let answer = client.get(path).await;
        assert_ne!(answer.status, 401, "{path}");
        assert_holds_none(path, &answer.body.to_string(), secrets);
    }
}

fn database_password(bed: &Bed) -> Option<String> {
    let url = reqwest::Url::parse(&bed.database.url).unwrap();
    url.password().map(str::to_owned)
}

/// A leaf for each way to authenticate, all at one address; and one elsewhere that wants nothing.
fn five_leaves(bed: &Bed, other: &Leaf, folder: &Folder, credentials: &Folder) -> Config {
    let token_file = folder.write("token", FROM_FILE);
    credentials.write("acme", CREDENTIAL);
    let url = bed.leaf.url();
    Config::new(&bed.database.url)
        .listen("admin_token = { env = \"ADMIN\" }")
        .leaf(
            "bearer",
            &url,
            &format!(
                "auth = {{ bearer = {{ env = \"BEARER\" }} }}\ncredentials = {{ dir = {:?} }}",
                credentials.path()
            ),
        )
        .leaf(
            "file",
            &url,
            &format!("auth = {{ bearer = {{ file = {token_file:?} }} }}"),
        )
        .leaf(
            "basic",
            &url,
            "auth = { basic = { user = \"robot\", password = { env = \"PASSWORD\" } } }",
        )
        .leaf(
            "header",
            &url,
            "auth = { header = { name = \"X-Token\", value = { env = \"OWN_HEADER\" } } }",
        )
        .leaf("other", &other.url(), "")
}

/// What robot and password look like on the wire.
fn pair() -> String {
    BASE64_STANDARD.encode(format!("robot:{PASSWORD}"))
}

/// Makes the leaf give all secrets back, in every kind of answer.
fn echoes_everything(bed: &Bed) {
    let pair = pair();
    let echo = json!({
        "Bearer": format!("Bearer {BEARER}"), "escaped": BEARER, "file": FROM_FILE,
        "credential": CREDENTIAL, "header": [OWN_HEADER], "basic": PASSWORD,
        "as sent": format!("Basic {pair}"),
    });
    let everything_back = |status| {
        let text = format!("{BEARER} {FROM_FILE} {CREDENTIAL} {OWN_HEADER} {pair}");
        Reply::json(status, &echo).header("etag", &text).header(
            "location",
            &format!("/x?token={BEARER}{CREDENTIAL}{FROM_FILE}{OWN_HEADER}"),
        )
    };
    bed.leaf.on("/json").answers(everything_back(201));
    bed.leaf.on("/no").refuses(everything_back(422));
    let text = format!("you sent {BEARER} {FROM_FILE} {CREDENTIAL} {OWN_HEADER} {PASSWORD} {pair}");
    bed.leaf
        .on("/text")
        .answers(Reply::bytes(200, text.clone()));
    bed.leaf.on("/cut").answers_raw(text);
}

#[tokio::test]
async fn no_secret_is_kept_or_said_even_if_the_leaf_echoes_it() {
    let bed = Bed::new().await;
    let other = Leaf::start().await;
    let (folder, credentials) = (Folder::new(), Folder::new());
    let config = five_leaves(&bed, &other, &folder, &credentials);
    echoes_everything(&bed);
    let pair = pair();
    let sidecar = config
        .sidecar()
        .environment("BEARER", BEARER)
        .environment("PASSWORD", PASSWORD)
        .environment("OWN_HEADER", OWN_HEADER)
        .environment("ADMIN", ADMIN)
        .environment(LOG_LEVEL, LOUD)
        .start()
        .await;

    let mut calls = Vec::new();
    // All get the same answers: what a call's own request carried must be cut from its own.
    for path in ["/json", "/text", "/no", "/cut"] {
        for leaf in ["bearer", "file", "basic", "header"] {
            calls.push(
                bed.app
                    .insert(to(leaf, &format!("{leaf}{path}")).path(path))
                    .await,
            );
        }
        let acme = to("bearer", &format!("acme{path}")).set("credential", "acme");
        calls.push(bed.app.insert(acme.path(path)).await);
    }
    calls.push(bed.app.insert(to("other", "other")).await);
    for id in &calls {
        until("the call has ended", async || {
            let call = bed.app.call(*id).await;
            match call["state"].as_str() {
                Some("confirmed" | "failed" | "parked") => Ok(()),
                _ => Err(call),
            }
        })
        .await;
    }
    // All of these were really sent.
    let sent: String = bed
        .leaf
        .all_requests()
        .iter()
        .map(|request| format!("{:?}\n", request.headers))
        .collect();
    for secret in [BEARER, FROM_FILE, CREDENTIAL, OWN_HEADER, pair.as_str()] {
        assert!(sent.contains(secret), "{secret} was not sent: {sent}");
    }
    let own_and_kept = [
        ("bearer", vec![BEARER]),
        ("file", vec![FROM_FILE]),
        ("basic", vec![PASSWORD, pair.as_str()]),
        ("header", vec![OWN_HEADER]),
        ("acme", vec![CREDENTIAL]),
    ];
    for (who, own) in own_and_kept {
        let own: Vec<String> = own.into_iter().map(str::to_owned).collect();
        let sql = format!(
            "SELECT concat(r::text, a::text, encode(r.body_raw, 'escape')) AS kept
               FROM leafhopper.outbox o
               LEFT JOIN leafhopper.result r ON r.call_id = o.id
               LEFT JOIN leafhopper.attempt a ON a.call_id = o.id
              WHERE o.key LIKE '{who}/%'"
        );
        let kept = bed.app.rows(&sql).await;
        assert_eq!(kept.len(), 4, "{kept:#?}");
        for row in kept {
            let text = row["kept"].as_str().unwrap();
            assert_holds_none(who, text, &own);
            // Of an answer that is no HTTP nothing is kept.
            let nothing = text.contains("invalid HTTP version");
            assert!(nothing || text.contains("[redacted]"), "{who}: {text}");
        }
    }
    // What no leaf is sent is nowhere at all.
    let mut never = vec![ADMIN.to_owned()];
    never.extend(database_password(&bed));
    assert_keeps_to_itself(&bed, &sidecar, &never).await;
    let all = [BEARER, FROM_FILE, CREDENTIAL, OWN_HEADER, PASSWORD, &pair].map(str::to_owned);
    assert_holds_none("the log", &text_of(&sidecar), &all);
    let elsewhere = format!("{:?}", other.all_requests());
    assert_eq!(other.all_requests().len(), 1);
    assert_holds_none("another leaf's request", &elsewhere, &all);
}

#[tokio::test]
async fn a_trace_log_of_ordinary_work_and_of_an_outage_holds_no_secret() {
    let bed = Bed::new().await;
    bed.leaf.always().times(1).refuses(401);
    let sidecar = bed
        .config("auth = { bearer = { env = \"BEARER\" } }")
        .listen("admin_token = { env = \"ADMIN\" }")
        .sidecar()
        .environment("BEARER", BEARER)
        .environment("ADMIN", ADMIN)
        .environment(LOG_LEVEL, LOUD)
        .start()
        .await;
    let id = bed.app.insert(to("leaf", "a")).await;
    until("its credential was refused", async || {
        let call = bed.app.call(id).await;
        if call["last_status"] == 401 {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    // Whoever asks with a token finds it nowhere, either.
    let client = Client::new(&sidecar).with_token(ADMIN);
    client.get("/metrics?token=none").await.expect(200);
    // Every connection to the database breaks, and is made anew.
    let broken = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
    bed.app.rows(broken).await;
    sidecar.until_ready().await;
    let mut secrets = vec![BEARER.to_owned(), ADMIN.to_owned()];
    secrets.extend(database_password(&bed));
    assert_eq!(secrets.len(), 3, "the database has a password");
    assert_keeps_to_itself(&bed, &sidecar, &secrets).await;
}

#[tokio::test]
async fn an_error_about_the_configuration_holds_no_secret() {
    const SECRET: &str = "hunter2-never-shown";
    let bed = Bed::new().await;
    let listen = "[listen]\naddress = \"127.0.0.1:0\"\n";
    let leaf = "[leaf.a]\nbase_url = \"http://127.0.0.1:1\"\n";
    for (text, database_url) in [
        (
            format!("[database]\nurl = \"postgres://u:{SECRET}%zz@h/d\"\n{listen}"),
            None,
        ),
        (
            format!("[database]\nurl = \"postgres://u:{SECRET}@h:port/d\"\n{listen}"),
            None,
        ),
        (
            format!(
                "[database]\nurl = \"postgres://u:p@h/d?password={SECRET}&sslmode=what\"\n{listen}"
            ),
            None,
        ),
        (
            listen.to_owned(),
            Some(format!("postgres://u:{SECRET}@[h/d")),
        ),
        (
            listen.to_owned(),
            Some(format!("host=h password='{SECRET}")),
        ),
        (
            format!("{listen}{leaf}auth = {{ bearer = \"{SECRET}\" }}\n"),
            Some(bed.database.url.clone()),
        ),
        (
            format!("{listen}[leaf.a]\nbase_url = \"http://u:{SECRET}@h\"\n"),
            Some(bed.database.url.clone()),
        ),
        (
            format!("{listen}{leaf}proxy = \"http://u:{SECRET}@h:port\"\n"),
            Some(bed.database.url.clone()),
        ),
        (
            format!("{listen}{leaf}auth = {{ bearer = {{ env = \"BROKEN\" }} }}\n"),
            Some(bed.database.url.clone()),
        ),
    ] {
        let mut starter = Config::new("").sidecar().environment(LOG_LEVEL, LOUD);
        starter = starter.environment("BROKEN", &format!("{SECRET}\nX: y"));
        if let Some(url) = &database_url {
            starter = starter.environment("DATABASE_URL", url);
        }
        starter.rewrite_text(&text);
        let mut sidecar = starter.launch();
        let status = sidecar.exit().await;
        let said = text_of(&sidecar);
        assert_eq!(status.code(), Some(1), "{text}: {said}");
        assert!(!said.contains("hunter2"), "{text}: {said}");
    }
}

#[tokio::test]
async fn a_refused_login_names_no_password() {
    let bed = Bed::new().await;
    let mut url = reqwest::Url::parse(&bed.database.url).unwrap();
    url.set_password(Some("hunter2-wrong")).unwrap();
    let config = Config::new(url.as_str()).leaf("leaf", &bed.leaf.url(), "");
    let starter = config.sidecar().environment(LOG_LEVEL, LOUD);
    let mut sidecar = starter.launch();
    let status = sidecar.exit().await;
    assert_eq!(status.code(), Some(1));
    until("it says why", async || {
        let said = text_of(&sidecar);
        if said.contains("password authentication failed") {
            Ok(())
        } else {
            Err(said)
        }
    })
    .await;
    let said = text_of(&sidecar);
    assert!(!said.contains("hunter2"), "{said}");
}
