//! A folder that survives the process: after a SIGKILL nobody waits for the lease, and what was claimed but not
//! begun is known not to be sent.

use std::{fs, path::PathBuf};

use rustix::process::Signal;

use crate::harness::{
    Bed,
    app::keyed,
    leaf::{Gate, Reply},
    proxy::Proxy,
    sidecar::Config,
    wait::until,
};

/// What the leaves have said, whether or not it is recorded.
const ANSWERED: &str = "leafhopper_attempts_total";

/// A folder of its own, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!(
            "leafhopper-test-state-{}-{name}",
            std::process::id()
        ));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A lease that no test waits for, and this folder.
    fn lines(&self) -> String {
        format!("lease = \"60s\"\nstate_dir = \"{}\"", self.0.display())
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

#[tokio::test]
async fn a_restart_after_a_kill_goes_on_at_once() {
    let bed = Bed::new().await;
    let folder = Folder::new("restart");
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("held")
        .times(1)
        .waits_before_the_answer(&gate)
        .answers(201);
    bed.leaf.honours(
        "Idempotency-Key",
        crate::harness::leaf::Remembers::Successes,
    );
    let config = bed
        .config("timeout = \"1s\"\nidempotency = { header = \"Idempotency-Key\", window = \"1h\" }")
        .dispatch(&folder.lines());
    let mut first = config.start().await;
    let held = bed.app.insert(keyed("leaf", "held")).await;
    gate.until_arrived(1).await;
    first.kill();
    gate.open();
    let mut second = config.start().await;
    let fresh = bed.app.insert(keyed("leaf", "fresh")).await;
    // Both long before the first one's lease is over.
    bed.app.until_state(fresh, "confirmed").await;
    bed.app.until_state(held, "confirmed").await;
    bed.leaf.assert_each_effect_once(["held", "fresh"]);
    assert!(second.stop().await.success());
    assert_eq!(
        folder.files(),
        Vec::<String>::new(),
        "a clean stop leaves nothing"
    );
}

#[tokio::test]
async fn what_was_claimed_but_not_begun_is_sent_and_the_rest_is_in_doubt() {
    let bed = Bed::new().await;
    let folder = Folder::new("begun");
    let unsent = bed.app.insert(keyed("leaf", "unsent")).await;
    let begun = bed.app.insert(keyed("leaf", "begun")).await;
    let dead = "00000000-0000-4000-8000-00000000dead";
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.instance (id, name, lease) VALUES ('{dead}', 'dead', '1 hour');
             UPDATE leafhopper.dispatch
                SET state = 'dispatching', instance = '{dead}', round = 1, tries = 1, claimed_at = now(),
                    alive_until = now(), first_claimed_at = now()"
        ))
        .await;
    let mut content = fs::read("/proc/sys/kernel/random/boot_id").unwrap();
    content.extend(begun.to_be_bytes());
    content.extend(1_i64.to_be_bytes());
    fs::write(folder.0.join(format!("instance-{dead}.begun")), content).unwrap();

    let config = bed.config("in_doubt = \"park\"").dispatch(&folder.lines());
    let _sidecar = config.start().await;
    bed.app.until_state(unsent, "confirmed").await;
    bed.app.until_state(begun, "parked").await;
    assert!(bed.leaf.requests("begun").is_empty());
    bed.leaf.assert_each_effect_once(["unsent"]);
}

#[tokio::test]
async fn a_living_instance_in_the_same_folder_is_left_alone() {
    let bed = Bed::new().await;
    let folder = Folder::new("two");
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("held")
        .waits_before_the_answer(&gate)
        .answers(201);
    let config = bed
        .config("in_doubt = \"park\"\nconcurrency = 4")
        .dispatch(&folder.lines());
    let first = config.start().await;
    let held = bed.app.insert(keyed("leaf", "held")).await;
    gate.until_arrived(1).await;
    // Stopped is not dead.
    first.signal(Signal::STOP);
    let second = config.start().await;
    until("both are registered", async || {
        let rows = bed.app.rows("SELECT id FROM leafhopper.instance").await;
        if rows.len() == 2 { Ok(()) } else { Err(rows) }
    })
    .await;
    first.signal(Signal::CONT);
    gate.open();
    bed.app.until_state(held, "confirmed").await;
    bed.leaf.assert_each_effect_once(["held"]);
    drop(second);
}

#[tokio::test]
async fn what_leaves_said_while_the_database_was_away_is_recorded_at_the_next_start() {
    answers_are_kept("journal", Proxy::cut).await;
}

/// What is just being written is not known to be recorded: nobody answers, and the process does not wait for that.
#[tokio::test]
async fn what_leaves_said_while_the_database_was_silent_is_recorded_at_the_next_start() {
    answers_are_kept("silent", Proxy::stall).await;
}

async fn answers_are_kept(folder: &str, fault: fn(&Proxy)) {
    let bed = Bed::new().await;
    let folder = Folder::new(folder);
    let gate = Gate::closed();
    bed.leaf
        .always()
        .key("yes")
        .waits_before_the_answer(&gate)
        .answers(201);
    bed.leaf
        .always()
        .key("no")
        .waits_before_the_answer(&gate)
        .refuses(422);
    let lines = format!("{}\nshutdown_grace = \"1s\"", folder.lines());
    let (proxy, config) = bed.behind_a_proxy("in_doubt = \"park\"").await;
    let config = config.dispatch(&lines);
    let mut first = config.start().await;
    let yes = bed.app.insert(keyed("leaf", "yes")).await;
    let no = bed.app.insert(keyed("leaf", "no")).await;
    gate.until_arrived(2).await;
    fault(&proxy);
    gate.open();
    first.until_metric(ANSWERED, &[], 2.0).await;
    assert!(!first.stop().await.success(), "something had to be left");
    let kept = folder.files();
    assert!(
        kept.iter().any(|name| name.starts_with("journal-")),
        "{kept:?}"
    );
    proxy.restore();
    let mut second = config.start().await;
    bed.app.until_state(yes, "confirmed").await;
    bed.app.until_state(no, "failed").await;
    bed.leaf.assert_each_effect_once(["yes"]);
    assert_eq!(bed.leaf.requests("no").len(), 1);
    assert!(second.stop().await.success());
    assert_eq!(folder.files(), Vec::<String>::new());
}

/// Leaves answer while the database is away, and the process ends; gives the calls, with the last one's answer
/// in a form that `jsonb` refuses.
async fn journal_of_two(bed: &Bed, folder: &Folder) -> (i64, i64, Config) {
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    bed.leaf
        .always()
        .key("odd")
        .waits_before_the_answer(&gate)
        .answers(Reply::bytes(201, "\"\\ud800\""));
    let (proxy, config) = bed.behind_a_proxy("in_doubt = \"park\"").await;
    let config = config.dispatch(&format!("{}\nshutdown_grace = \"1s\"", folder.lines()));
    let mut sidecar = config.start().await;
    let plain = bed.app.insert(keyed("leaf", "plain")).await;
    let odd = bed.app.insert(keyed("leaf", "odd")).await;
    gate.until_arrived(2).await;
    proxy.cut();
    gate.open();
    sidecar.until_metric(ANSWERED, &[], 2.0).await;
    assert!(!sidecar.stop().await.success(), "something had to be left");
    let direct = bed.config("in_doubt = \"park\"").dispatch(&folder.lines());
    (plain, odd, direct)
}

#[tokio::test]
async fn an_answer_in_the_journal_that_jsonb_refuses_is_recorded_as_bytes() {
    let bed = Bed::new().await;
    let folder = Folder::new("odd");
    let (plain, odd, config) = journal_of_two(&bed, &folder).await;
    let _sidecar = config.start().await;
    bed.app.until_state(plain, "confirmed").await;
    bed.app.until_state(odd, "confirmed").await;
    let kept = bed.app.results("leaf", "odd").await.remove(0);
    assert_eq!(kept["body_raw"], "\\x225c756438303022");
    until("the journal is taken away", async || {
        let files = folder.files();
        if files.iter().any(|name| name.starts_with("journal-")) {
            Err(files)
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn an_app_s_trigger_that_fails_keeps_the_journal_and_not_the_sidecar_from_its_work() {
    let bed = Bed::new().await;
    let folder = Folder::new("trigger");
    let (plain, odd, config) = journal_of_two(&bed, &folder).await;
    // A column that is not there is what a person has to mend; waiting for it must stop nobody else.
    bed.app
        .execute(
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM no_such_column; RETURN NEW; END';
             CREATE TRIGGER fails BEFORE INSERT ON leafhopper.result FOR EACH ROW WHEN (NEW.key = 'odd') \
             EXECUTE FUNCTION fails()",
        )
        .await;
    let mut sidecar = config.start().await;
    bed.app.until_state(plain, "confirmed").await;
    let other = bed.app.insert(keyed("leaf", "other")).await;
    bed.app.until_state(other, "confirmed").await;
    let told = |line: &serde_json::Value| {
        line["level"] == "ERROR" && line.to_string().contains("no_such_column")
    };
    until("it is told", async || {
        let log = sidecar.log();
        if log.iter().any(told) {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    assert!(sidecar.stop().await.success());
    // The answer is still there for the start after that.
    bed.app
        .execute("DROP TRIGGER fails ON leafhopper.result")
        .await;
    let _next = config.start().await;
    bed.app.until_state(odd, "confirmed").await;
    assert_eq!(bed.leaf.requests("odd").len(), 1);
}
