//! The files of `deploy/` as their checkers see them, and what they have to agree about.

use std::process::Command;

use super::{checker, read, root, run};

#[test]
fn the_checkers_find_the_files_well() {
    let scripts = [
        ".ci/deploy",
        "deploy/compose/app/orders.sh",
        "deploy/compose/roles.sh",
        "deploy/compose/secrets.sh",
        "deploy/image/by-hand",
        "deploy/image/root",
    ];
    let compose = [
        "--config",
        "tests/it/deploy/dclint.json",
        "--max-warnings",
        "0",
        "deploy/compose/compose.yaml",
    ];
    for (name, words) in [
        ("hadolint", &["Dockerfile"][..]),
        ("shellcheck", &scripts[..]),
        ("dclint", &compose[..]),
    ] {
        let Some(program) = checker(name) else {
            continue;
        };
        let output = run(Command::new(program).args(words), "");
        assert!(output.status.success(), "{name}: {output:#?}");
    }
}

#[test]
fn they_name_the_version_that_there_is() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = read("deploy/helm/leafhopper/Chart.yaml");
    for line in [
        format!("version: {version}"),
        format!("appVersion: {version}"),
    ] {
        assert!(chart.lines().any(|it| it == line), "{line}: {chart}");
    }
    let example = read("deploy/helm/example-app/Chart.yaml");
    assert!(
        example.contains(&format!("    version: {version}\n")),
        "{example}"
    );
    let compose = read("deploy/compose/compose.yaml");
    let images = compose.matches("image: leafhopper:").count();
    assert_eq!(images, 2);
    assert_eq!(
        compose
            .matches(&format!("image: leafhopper:{version}\n"))
            .count(),
        images
    );

    let toolchain: toml::Table = toml::from_str(&read("rust-toolchain.toml")).unwrap();
    let rust = toolchain["toolchain"]["channel"].as_str().unwrap();
    let dockerfile = read("Dockerfile");
    assert!(
        dockerfile.contains(&format!("FROM rust:{rust}-")),
        "{dockerfile}"
    );
    assert!(
        dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={rust}\n")),
        "{dockerfile}"
    );
}

#[test]
fn what_the_chart_brings_along_is_no_copy() {
    for (link, file) in [
        (
            "leafhopper.rules.yml",
            "deploy/prometheus/leafhopper.rules.yml",
        ),
        ("leafhopper.json", "deploy/grafana/leafhopper.json"),
    ] {
        let link = root().join("deploy/helm/leafhopper/files").join(link);
        let meant = root().join(file).canonicalize().unwrap();
        assert_eq!(link.canonicalize().unwrap(), meant);
    }
}
