//! systemd's unit: what systemd says of it, and its command line, run.

use std::process::Command;

use serde_json::json;

use super::{checker, read, run};
use crate::harness::{Bed, app::call, folder::Folder};

const UNIT: &str = "deploy/systemd/leafhopper.service";

/// The values of a setting, in order.
fn values<'unit>(unit: &'unit str, name: &str) -> Vec<&'unit str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .collect()
}

#[test]
fn systemd_finds_it_well_and_little_exposed() {
    let Some(program) = checker("systemd-analyze") else {
        return;
    };
    // It wants the program to be there.
    let text = read(UNIT).replace(
        "/usr/local/bin/leafhopper",
        env!("CARGO_BIN_EXE_leafhopper"),
    );
    let folder = Folder::new();
    let unit = folder.write("leafhopper.service", &text);
    let output = run(
        Command::new(&program)
            .args(["verify", "--man=no"])
            .arg(&unit),
        "",
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && !said.contains("leafhopper"),
        "{output:#?}"
    );

    let words = ["security", "--offline=true", "--no-pager", "--threshold=15"];
    let output = run(Command::new(&program).args(words).arg(&unit), "");
    assert!(output.status.success(), "{output:#?}");
}

#[tokio::test]
async fn its_command_line_runs_with_its_environment_and_credentials() {
    let bed = Bed::new().await;
    let unit = read(UNIT);
    let credentials = Folder::new();
    credentials.write("database_url", &bed.database.url);
    let place = "/run/credentials/leafhopper.service";
    let state = Folder::new();
    let text = format!(
        "database.url = {{ file = \"{place}/database_url\" }}\nlisten.address = \"127.0.0.1:0\"\n\
         dispatch.state_dir = \"/var/lib/leafhopper\"\nleaf.leaf.base_url = {:?}\n",
        bed.leaf.url()
    );
    let text = text.replace(place, credentials.path().to_str().unwrap());
    let text = text.replace("/var/lib/leafhopper", state.path().to_str().unwrap());

    assert_eq!(
        values(&unit, "ExecStart"),
        ["/usr/local/bin/leafhopper run"]
    );
    let environment = values(&unit, "Environment");
    assert_eq!(
        environment,
        ["LEAFHOPPER_CONFIG=/etc/leafhopper/leafhopper.toml"]
    );
    assert_eq!(values(&unit, "StateDirectory"), ["leafhopper"]);
    let credential = values(&unit, "LoadCredential");
    assert_eq!(
        credential,
        ["database_url:/etc/leafhopper/secrets/database_url"]
    );

    // The harness' command line is the unit's; the file is the one that the variable names.
    let starter = bed.config("").sidecar();
    starter.rewrite_text(&text);
    let mut sidecar = starter.start().await;
    let id = bed.app.insert(call("leaf").body(json!({"key": "a"}))).await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(sidecar.stop().await.code(), Some(0));
}

#[test]
fn its_times_are_those_of_the_defaults() {
    let defaults: toml::Table = toml::from_str(&read("deploy/leafhopper.default.toml")).unwrap();
    assert_eq!(defaults["dispatch"]["shutdown_grace"].as_str(), Some("25s"));
    // 25 seconds beyond it: what recording takes where the database is away.
    assert_eq!(values(&read(UNIT), "TimeoutStopSec"), ["50s"]);
    assert!(read("deploy/compose/compose.yaml").contains("stop_grace_period: 50s\n"));
}
