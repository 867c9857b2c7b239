//! Tests of loading a configuration. The environment is a map; files are in a folder of each test.

mod faults;
mod secrets;
mod tables;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::ExposeSecret as _;

use super::*;
use crate::domain::{
    decision::Policy,
    outcome::{Class, Rules},
};

const FILE: &str = "leafhopper.toml";

const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A folder that goes away with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("leafhopper-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file in it and says where.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn path(&self) -> std::path::Display<'_> {
        self.0.display()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("the test made it");
    }
}

fn parse_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let env = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    Config::parse(text, Path::new(FILE), &env)
}

/// Parses a leaf's settings, in a file that is fine otherwise.
fn parse_leaf(settings: &str) -> Result<Config, ConfigError> {
    let text = format!(
        "[database]\nurl = \"postgres://u@localhost/app?sslmode=disable\"\n\
         [leaf.git]\nbase_url = \"https://git.example.com\"\n{settings}"
    );
    let variables = [("TOKEN", "t0ken-of-git"), ("WEBHOOK", WEBHOOK_SECRET)];
    parse_with(&text, &variables)
}

/// The example of the contract, section 6, with its folder of credentials.
fn contract(credentials: &Folder) -> String {
    include_str!("contract.toml").replace("/run/secrets/git", &credentials.0.to_string_lossy())
}

const CONTRACT_ENV: [(&str, &str); 2] = [
    ("LEAFHOPPER_ADMIN_TOKEN", "an-admin-token-of-some-length"),
    ("GIT_TOKEN", "t0ken-of-git"),
];

#[test]
fn loads_the_example_of_the_contract() {
    let folder = Folder::new("contract");
    folder.write("acme", "t0ken-of-acme\n");
    let config = parse_with(&contract(&folder), &CONTRACT_ENV).unwrap();

    assert_eq!(config.listen.address.to_string(), "127.0.0.1:9187");
    assert_eq!(config.dispatch.lease, Duration::from_secs(30));
    assert_eq!(config.retention.finished, Some(Duration::from_hours(720)));
    assert_eq!(config.retention.results, None);
    assert_eq!(config.retention.actions, None);

    let git = &config.leaves["git"];
    assert_eq!(git.base_url.as_str(), "https://git.example.com/api/v1");
    assert!(
        matches!(&git.auth, Some(Auth::Bearer(token)) if token.expose_secret() == "t0ken-of-git")
    );
    assert_eq!(git.secrets.names(), ["acme"]);
    assert_eq!(git.concurrency, 32);
    assert_eq!(git.rate, Some(50.0));
    assert_eq!(
        git.rules,
        Rules {
            outcome: [(404, Class::Retry)].into(),
            exists_on: vec![409, 422],
            verdict: None,
        }
    );
    assert_eq!(git.in_doubt, Some(Policy::Probe));
    assert_eq!(git.retry.max_attempts, 50);
    assert_eq!(git.retry.give_up_after, Duration::from_hours(24));
    assert_eq!(git.max_response_bytes, 1 << 20);
    let probe = git.probe.as_ref().unwrap();
    assert_eq!(
        (probe.method.as_str(), probe.max_probes),
        ("GET", DEFAULT_MAX_PROBES)
    );
    assert_eq!(probe.settle, DEFAULT_SETTLE);
    assert_eq!(git.compensate.as_ref().unwrap().method, "DELETE");

    let pay = &config.leaves["pay"];
    assert_eq!(pay.concurrency, 64);
    assert_eq!(pay.connect_timeout, Duration::from_secs(5));
    assert_eq!(pay.retry.max_attempts, 20);
    assert_eq!(
        pay.idempotency,
        Some(Idempotency {
            header: "idempotency-key".to_owned(),
            format: IdempotencyFormat::Raw,
            window: Duration::from_hours(24),
            replays: Replays::Success,
        })
    );
}

#[test]
fn the_defaults_and_all_their_examples_are_a_configuration() {
    let folder = Folder::new("defaults");
    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");
    let text = defaults::uncomment(&["#  ", "#"])
        .replace(
            "/run/secrets/database_url",
            &folder.write("url", "postgres://localhost/app"),
        )
        .replace(
            "/run/secrets/example",
            &folder.0.join("none").to_string_lossy(),
        )
        .replace("/var/lib/leafhopper", &folder.0.to_string_lossy())
        .replace("/etc/ssl/ca.pem", &format!("{tls}/ca.pem"))
        .replace("/etc/ssl/client.pem", &format!("{tls}/server.pem"))
        .replace("/etc/ssl/client.key", &format!("{tls}/server.key"));
    for name in ["none", "none-signing"] {
        fs::create_dir_all(folder.0.join(name)).unwrap();
    }
    let env = [
        ("LEAFHOPPER_ADMIN_TOKEN", "an-admin-token-of-some-length"),
        ("EXAMPLE_TOKEN", "t"),
        ("EXAMPLE_SIGNING_SECRET", WEBHOOK_SECRET),
        ("PROXY_PASSWORD", "p"),
    ];
    let config = parse_with(&text, &env).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.leaves["example"].in_doubt, Some(Policy::Park));
    assert!(config.leaves["example"].tls.client.is_some());
    assert_eq!(
        config.leaves["example"].signing,
        Some(Signing::StandardWebhooks)
    );
}

#[test]
fn needs_no_more_than_a_database_and_a_leaf() {
    let text = "[leaf.a]\nbase_url = \"http://localhost:1\"";
    let url = ("DATABASE_URL", "postgres://u@localhost/app");
    let config = parse_with(text, &[url]).unwrap();
    let leaf = &config.leaves["a"];
    assert_eq!(leaf.timeout, Duration::from_secs(30));
    assert_eq!(leaf.retry.schedule.max, Duration::from_mins(10));
    assert_eq!(leaf.in_doubt, None);
    assert!(leaf.auth.is_none());
    assert_eq!(config.database.pool_size, 10);
}

#[test]
fn the_environment_goes_before_the_files_url() {
    let text = "[database]\nurl = \"postgres://u@in-file/app\"";
    let url = ("DATABASE_URL", "postgres://u@in-env/app");
    let config = parse_with(text, &[url]).unwrap();
    assert_eq!(config.database.url.expose_secret(), url.1);
}

#[test]
fn a_leaf_overrides_single_retry_settings() {
    let config = parse_with(
        "[database]\nurl = \"postgres://u@localhost/app\"\n[retry]\nmax = \"1m\"\njitter = 0\n\
         [leaf.a]\nbase_url = \"http://localhost\"\nretry = { max = \"2m\" }\n\
         [leaf.b]\nbase_url = \"http://localhost\"",
        &[],
    )
    .unwrap();
    let schedule = |name: &str| &config.leaves[name].retry.schedule;
    assert_eq!(schedule("a").max, Duration::from_mins(2));
    assert!(schedule("a").jitter.abs() < f64::EPSILON);
    assert_eq!(schedule("b").max, Duration::from_mins(1));
}

#[test]
fn a_short_timeout_shortens_the_default_connect_timeout() {
    let config = parse_leaf("timeout = \"2s\"").unwrap();
    let leaf = &config.leaves["git"];
    assert_eq!(leaf.connect_timeout, Duration::from_secs(2));
}

#[test]
fn warns_of_what_is_probably_not_meant() {
    for (settings, said) in [
        ("", "leaf.git.outcome: calls in doubt are parked, and a 503"),
        ("in_doubt = \"probe\"", "leaf.git.in_doubt: is \"probe\""),
        (
            "probe = { path = \"/x\" }",
            "leaf.git.probe: has no `found`",
        ),
        (
            "[listen]\naddress = \"0.0.0.0:9187\"",
            "listen.address: 0.0.0.0:9187 can be reached",
        ),
        (
            "[listen]\nadmin_token = { env = \"TOKEN\" }",
            "listen.admin_token: is shorter than 16",
        ),
        (
            "[retention]\nresults = \"1d\"",
            "retention.results: is shorter",
        ),
    ] {
        let warnings = parse_leaf(settings).unwrap().warnings;
        let found = warnings.iter().any(|warning| warning.starts_with(said));
        assert!(found, "{settings} gives {warnings:#?}");
    }
    let quiet = parse_leaf("outcome = { 503 = \"retry\" }").unwrap();
    assert_eq!(quiet.warnings, [""; 0]);
}

#[test]
fn the_database_alone_loads_whatever_is_wrong_with_the_leaves() {
    let file = std::env::temp_dir().join(format!("leafhopper-{}.toml", uuid::Uuid::new_v4()));
    let load = |text: &str| {
        fs::write(&file, text).unwrap();
        load_database(&file, &|_| None)
    };
    let broken = load("[database]\nurl = \"postgres://localhost/app\"\n[leaf.git]\nbase = 7");
    let nothing = load("[leaf.git]\nbase = 7");
    fs::remove_file(&file).unwrap();
    assert!(broken.is_ok(), "{broken:?}");
    let faults = nothing.unwrap_err().faults;
    let keys: Vec<&str> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["database.url"]);
}

#[test]
fn names_the_changes_that_need_a_restart() {
    let config = |settings: &str| parse_leaf(settings).unwrap();
    let old = config("");
    let changes = |settings| Config::changes_needing_restart(&old, &config(settings));
    assert_eq!(
        changes("timeout = \"1s\"\n[dispatch]\nlease = \"1m\""),
        [""; 0]
    );
    assert_eq!(changes("[listen]\naddress = \"127.0.0.1:1\""), ["listen"]);
    assert_eq!(
        changes("[listen]\nadmin_token = { env = \"TOKEN\" }"),
        ["listen"]
    );
    let mut moved = config("");
    moved.database.pool_size = 11;
    assert_eq!(Config::changes_needing_restart(&old, &moved), ["database"]);
}

#[test]
fn the_examples_of_the_documents_are_configurations() {
    let readme = include_str!("../../../README.md");
    let leaves = include_str!("../../../docs/leaves.md");
    let blocks = |text: &'static str| text.split("```toml\n").skip(1);
    let examples = blocks(readme).chain(blocks(leaves));
    let mut seen = 0;
    for example in examples.filter_map(|rest| rest.split("```").next()) {
        let database = "[database]\nurl = \"postgres://u@localhost/app?sslmode=disable\"\n";
        let text = if example.contains("[database]") {
            example.to_owned()
        } else {
            format!("{database}{example}")
        };
        let text = text.replace(
            "/var/lib/leafhopper",
            &std::env::temp_dir().to_string_lossy(),
        );
        let secrets = [("HOOK_SECRET", WEBHOOK_SECRET), ("CI_SECRET", "s3cret")];
        let config = parse_with(&text, &secrets);
        let config = config.unwrap_or_else(|flaws| panic!("{example}\n{flaws}"));
        assert_eq!(
            config.leaves.is_empty(),
            !example.contains("[leaf."),
            "{example}"
        );
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn the_recipes_are_configurations_without_a_warning() {
    let listed = include_str!("../../../docs/leaves.md");
    let env = |name: &str| {
        let value = match name {
            "DATABASE_URL" => "postgres://u@localhost/app?sslmode=disable",
            "WEBHOOK_SECRET" => WEBHOOK_SECRET,
            _ => "s3cret",
        };
        Some(value.to_owned())
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/leaves");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let recipe = fs::read_to_string(&file).unwrap();
        let config = Config::parse(&recipe, &file, &env).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.warnings, [""; 0], "{}", file.display());
        assert_eq!(config.leaves.len(), 1, "{}", file.display());
        let name = file.file_name().unwrap().to_string_lossy();
        assert!(
            listed.contains(&format!("(../deploy/leaves/{name})")),
            "{name}"
        );
        seen += 1;
    }
    assert_eq!(seen, listed.matches("(../deploy/leaves/").count());
}
