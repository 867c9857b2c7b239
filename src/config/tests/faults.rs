//! Tests of what is refused, and what is said about it.

use super::{
    tables::{LEAF, OTHERS},
    *,
};

fn refusal(loaded: Result<Config, ConfigError>, of: &str) -> ConfigError {
    match loaded {
        Ok(_) => panic!("this is taken:\n{of}"),
        Err(error) => error,
    }
}

#[test]
fn reports_every_fault_together_with_file_line_and_path() {
    let text = "\
[database]
url = \"postgres://u@localhost/app\"
pol_size = 3
[dispatch]
lease = \"1h\"
[retry]
jitter = 1.5
[leaf.git]
base_url = \"ftp://x\"
auth = { bearer = \"hunter2\" }
timeout = 30
exists_on = [409]
[leaf.git.outcome]
503 = \"retri\"
[leaf.pay]
auth = { bearer = { env = \"PAY_TOKEN\" } }
[leaf.pay.idempotency]
header = \"X-Key\"
window = \"1s\"
[listening]
";
    let error = refusal(parse_with(text, &[]), text);
    insta::assert_snapshot!(error, @r#"
    leafhopper.toml:3: database.pol_size: unknown key; did you mean `pool_size`?
    leafhopper.toml:5: dispatch.lease: 1h is out of range; 1s to 10m. A shorter one takes a slow instance for dead, a longer one leaves a dead instance's calls in doubt for as long
    leafhopper.toml:7: retry.jitter: 1.5 is out of range; 0 to 1, a part of the delay
    leafhopper.toml:9: leaf.git.base_url: "ftp://x" is neither an http nor an https URL
    leafhopper.toml:10: leaf.git.auth.bearer: a secret is not written into this file; use { env = "NAME" } or { file = "/path" }
    leafhopper.toml:11: leaf.git.timeout: 30 has no unit; write a duration such as "30s", "1m 30s" or "24h"
    leafhopper.toml:12: leaf.git.exists_on: needs [leaf.git.probe]: that something exists is not yet that it is ours, so what exists has to be asked for
    leafhopper.toml:14: leaf.git.outcome.503: "retri" is not one of confirmed, retry, in_doubt, exists, failed (did you mean "retry"?)
    leafhopper.toml:15: leaf.pay.base_url: missing; write base_url = "https://host/path"
    leafhopper.toml:16: leaf.pay.auth.bearer: the environment variable PAY_TOKEN is not set
    leafhopper.toml:17: leaf.pay.idempotency: window (1s) is shorter than timeout (30s): the leaf would forget a key while its request still runs, and a resend would happen twice
    leafhopper.toml:20: listening: unknown key; did you mean `listen`?
    "#);
    assert!(error.faults.len() >= 6);
}

#[test]
fn says_what_is_wrong_with_a_leaf_and_what_would_be_right() {
    for &(settings, key, said) in LEAF {
        let error = refusal(parse_leaf(settings), settings);
        let key = format!("leaf.git.{key}");
        let found = error
            .faults
            .iter()
            .find(|fault| fault.key == key && fault.problem.contains(said));
        let found = found.unwrap_or_else(|| panic!("{settings} gives:\n{error}"));
        assert!(found.line.is_some_and(|line| line >= 3), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert_eq!(error.faults.len(), 1, "{settings} gives:\n{error}");
    }
}

#[test]
fn says_what_is_wrong_with_the_other_tables() {
    for &(text, key, said) in OTHERS {
        let error = refusal(parse_with(text, &[]), text);
        let found = error
            .faults
            .iter()
            .any(|fault| fault.key == key && fault.problem.contains(said));
        assert!(found, "{text} gives:\n{error}");
    }
}

#[test]
fn a_fault_of_retry_is_said_once() {
    let text =
        "[retry]\njitter = 2.0\n[leaf.a]\nbase_url = \"http://x\"\nretry = { max_attempts = 3 }";
    let url = ("DATABASE_URL", "postgres://localhost/app");
    let error = refusal(parse_with(text, &[url]), text);
    assert_eq!(error.faults.len(), 1, "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = refusal(Config::load(Path::new("/none.toml"), &|_| None), "");
    assert!(error.to_string().starts_with("/none.toml: can't be read"));
}
