//! A configuration that is wrong, as the program meets it: all faults at once, exit code 1, nothing started.

use crate::harness::{
    Bed,
    app::call,
    sidecar::{Config, Sidecar},
    wait::until,
};

/// Everything that it has said; it has ended.
async fn said_by(sidecar: &mut Sidecar) -> String {
    let status = sidecar.exit().await;
    let text = |sidecar: &Sidecar| -> String {
        let log = sidecar.log();
        let said = |line: &serde_json::Value| line["message"].as_str().map(str::to_owned);
        let lines = log
            .iter()
            .map(|line| said(line).unwrap_or(line.to_string()));
        lines.map(|line| format!("{line}\n")).collect()
    };
    assert_eq!(status.code(), Some(1), "{}", text(sidecar));
    text(sidecar)
}

#[tokio::test]
async fn all_faults_are_reported_together_and_nothing_is_started() {
    let bed = Bed::new().await;
    bed.app.insert(call("good")).await;
    let text = format!(
        "[database]\nurl = {:?}\npool_sise = 3\n[listen]\naddress = \"127.0.0.1:0\"\n\
         [dispatch]\npoll_interval = \"often\"\nlease = \"1ms\"\n\
         [leaf.good]\nbase_url = {:?}\n\
         [leaf.bad]\nbase_url = \"ftp://x\"\nauth = {{ bearer = {{ env = \"NOT_SET\" }} }}\n\
         exists_on = [409]\n",
        bed.database.url,
        bed.leaf.url()
    );
    let starter = Config::new("").sidecar();
    starter.rewrite_text(&text);
    let mut sidecar = starter.launch();
    let said = said_by(&mut sidecar).await;
    for (line, key, fault) in [
        (3, "database.pool_sise", "pool_size"),
        (7, "dispatch.poll_interval", "duration"),
        (8, "dispatch.lease", "1s to 10m"),
        (12, "leaf.bad.base_url", "http"),
        (13, "leaf.bad.auth.bearer", "NOT_SET"),
        (14, "leaf.bad.exists_on", "probe"),
    ] {
        let place = format!("leafhopper.toml:{line}: {key}");
        let found = said
            .lines()
            .any(|said| said.contains(&place) && said.contains(fault));
        assert!(found, "{place} … {fault} is not in:\n{said}");
    }
    assert!(!said.contains("listens on"), "{said}");
    assert!(bed.leaf.all_requests().is_empty());
    let instances = bed.app.rows("SELECT * FROM leafhopper.instance").await;
    assert!(instances.is_empty(), "{instances:?}");
}

#[tokio::test]
async fn what_is_no_toml_or_is_not_there_is_said_with_its_place() {
    for (text, fault) in [
        (Some("[database\n"), "leafhopper.toml:1"),
        (
            Some("[database]\nurl = \"a\"\nurl = \"b\"\n"),
            "leafhopper.toml:3",
        ),
        (None, "can't be read"),
    ] {
        let starter = Config::new("").sidecar();
        match text {
            Some(text) => starter.rewrite_text(text),
            None => starter.remove_file(),
        }
        let mut sidecar = starter.launch();
        let said = said_by(&mut sidecar).await;
        assert!(said.contains(fault), "{fault} is not in:\n{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[tokio::test]
async fn a_system_without_authorities_is_an_error_that_says_what_to_do() {
    let bed = Bed::new().await;
    let config = Config::new(&bed.database.url);
    let https = config.clone().leaf("far", "https://127.0.0.1:1", "");
    let mut sidecar = https
        .sidecar()
        .environment("SSL_CERT_FILE", "/nonexistent/file")
        .environment("SSL_CERT_DIR", "/nonexistent/folder")
        .launch();
    let said = said_by(&mut sidecar).await;
    assert!(!said.contains("panicked"), "{said}");
    assert!(said.contains("leaf.far.tls.ca"), "{said}");
    assert!(said.contains("ca-certificates"), "{said}");
}

#[tokio::test]
async fn a_file_of_certificates_that_is_not_there_is_named() {
    let bed = Bed::new().await;
    let config = Config::new(&bed.database.url).leaf(
        "far",
        "https://127.0.0.1:1",
        "tls = { ca = \"/nonexistent/ca.pem\" }",
    );
    let mut sidecar = config.sidecar().launch();
    let said = said_by(&mut sidecar).await;
    assert!(said.contains("leaf.far.tls"), "{said}");
    assert!(said.contains("/nonexistent/ca.pem"), "{said}");
}

#[tokio::test]
async fn a_database_without_the_schema_is_an_error_that_names_the_command() {
    let database = crate::harness::database::Database::empty().await;
    let mut sidecar = Config::new(&database.url).sidecar().launch();
    let said = said_by(&mut sidecar).await;
    assert!(said.contains("leafhopper migrate"), "{said}");
}

#[tokio::test]
async fn an_address_in_use_is_an_error_that_names_it() {
    let bed = Bed::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = Config::new(&bed.database.url);
    let starter = config.sidecar();
    starter.rewrite_text(&config.text().replace("127.0.0.1:0", &address));
    let mut sidecar = starter.launch();
    let said = said_by(&mut sidecar).await;
    assert!(
        said.contains("listen.address") && said.contains(&address),
        "{said}"
    );
}

#[tokio::test]
async fn a_reload_that_is_refused_changes_nothing_and_is_shown() {
    let bed = Bed::new().await;
    let config = bed.config("");
    let sidecar = config.start().await;
    let failed = async |wanted: f64| {
        until("the metric says it", async || {
            let found = sidecar.metric("leafhopper_config_reload_failed", &[]).await;
            if (found - wanted).abs() < 0.1 {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    };
    sidecar.rewrite(&bed.config("timeot = \"1s\""));
    sidecar.signal(rustix::process::Signal::HUP);
    failed(1.0).await;
    let id = bed.app.insert(call("leaf")).await;
    bed.app.until_state(id, "confirmed").await;
    let log: String = sidecar.log().iter().map(ToString::to_string).collect();
    assert!(log.contains("leaf.leaf.timeot"), "{log}");
    sidecar.rewrite(&config);
    sidecar.signal(rustix::process::Signal::HUP);
    failed(0.0).await;
}
