//! From an alert's own text to the mend: what it says is typed as it stands, with the ids that the lists show.

use rustix::process::Signal;

use super::run::Run;
use crate::{harness::wait::until, runbook};

/// What is over after these.
pub(super) const MENDED: &[&str] = &[
    "LeafhopperBreakerOpen",
    "LeafhopperCallsInDoubt",
    "LeafhopperCallsParked",
    "LeafhopperConfigReloadRefused",
    "LeafhopperLeafUnknown",
    "LeafhopperTeardownIncomplete",
];

/// The commands of an alert, and how far they have been typed.
struct Reader<'run> {
    run: &'run Run,
    commands: Vec<Vec<String>>,
}

impl<'run> Reader<'run> {
    /// Reads the alert of that name, for that leaf.
    async fn of(run: &'run Run, name: &str, leaf: &str) -> Self {
        let alert = run.alert(name, leaf).await;
        let section = runbook::section(&alert.annotations["runbook_url"]);
        let commands = runbook::commands_in(&alert.annotations["description"]);
        for command in &commands {
            let first = command[..2].join(" ");
            assert!(
                section.contains(&first),
                "{name}: the runbook has no `{first}`"
            );
        }
        Self { run, commands }
    }

    /// Types the first command with these words in it; ID and BATCH are this. Gives what it wrote.
    async fn types(&self, has: &str, id: &str) -> String {
        let command = self
            .commands
            .iter()
            .find(|words| words.join(" ").contains(has));
        let command = command.unwrap_or_else(|| panic!("no {has} in {:?}", self.commands));
        self.run.says(command, id).await
    }

    /// Types it until the list has one row: while a call is tried again, it is not there. Gives the row's id.
    async fn finds(&self, has: &str) -> String {
        until(&format!("{has} lists one call"), async || {
            let table = self.types(has, "").await;
            match table.lines().skip(1).collect::<Vec<_>>()[..] {
                [_] => Ok(only_id(&table)),
                _ => Err(table),
            }
        })
        .await
    }
}

impl Run {
    /// Runs a command as it was written; gives what it wrote.
    async fn says(&self, command: &[String], id: &str) -> String {
        let words: Vec<&str> = command[1..]
            .iter()
            .map(|word| {
                if matches!(word.as_str(), "ID" | "BATCH") {
                    id
                } else {
                    word
                }
            })
            .collect();
        let output = self.sidecar.command(&words).await;
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The first cell of a table's only row.
fn only_id(table: &str) -> String {
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!(rows.len(), 1, "{table}");
    rows[0].split_whitespace().next().unwrap().to_owned()
}

fn id_of(text: &str) -> i64 {
    text.parse().unwrap()
}

pub(super) async fn parked_call(run: &Run) {
    let reader = Reader::of(run, "LeafhopperCallsParked", "silent").await;
    let id = reader.finds("calls --state parked").await;
    let shown = reader.types("show", &id).await;
    assert!(shown.contains("parked: no_probe"), "{shown}");
    assert_eq!(run.bed.leaf.effects("parked"), 1, "a look at the leaf");
    reader.types("--confirmed", &id).await;
    assert_eq!(run.bed.app.state(id_of(&id)).await, "confirmed");
}

pub(super) async fn long_doubt(run: &Run) {
    let reader = Reader::of(run, "LeafhopperCallsInDoubt", "vague").await;
    let id = reader.finds("calls --state in_doubt").await;
    let shown = reader.types("show", &id).await;
    assert!(shown.contains("probe_unclear"), "{shown}");
    reader.types("--confirmed", &id).await;
    run.bed.app.until_state(id_of(&id), "confirmed").await;
}

/// With the configuration that was refused, which is mended on the way.
pub(super) async fn unknown_leaf(run: &Run) {
    let reader = Reader::of(run, "LeafhopperLeafUnknown", "").await;
    let list = reader.types("--reason-is leaf_unknown", "").await;
    assert!(list.contains("nowhere"), "{list}");
    let id = id_of(&only_id(&list));
    let config = run.config.clone().leaf("nowhere", &run.bed.leaf.url(), "");
    run.sidecar.rewrite(&config);
    run.sidecar.signal(Signal::HUP);
    run.bed.app.until_state(id, "confirmed").await;
}

pub(super) async fn bad_token(run: &Run) {
    let reader = Reader::of(run, "LeafhopperBreakerOpen", "token").await;
    let id = reader.finds("--reason-is breaker_open").await;
    let shown = reader.types("show", &id).await;
    assert!(shown.contains("401"), "{shown}");
    run.folder.write("token", "new");
    reader.types("resume token", "").await;
    run.bed.app.until_state(id_of(&id), "confirmed").await;
}

pub(super) async fn incomplete_teardown(run: &Run) {
    let reader = Reader::of(run, "LeafhopperTeardownIncomplete", "").await;
    let batch = only_id(&reader.types("batches --stuck", "").await);
    let shown = reader.types("batch BATCH", &batch).await;
    assert!(
        shown.contains("teardown_incomplete") && shown.contains("403"),
        "{shown}"
    );
    // The leaf lets it be deleted from now on.
    run.bed.leaf.on("/undo").method("DELETE").answers(204);
    let retry = shown.lines().find(|line| line.contains("leafhopper retry"));
    let retry = runbook::words(&retry.unwrap().trim().replace('…', "they allow it now"));
    run.says(&retry, "").await;
    let sql = format!("SELECT state FROM leafhopper.batch WHERE id = '{batch}'");
    until("it is undone", async || {
        let rows = run.bed.app.rows(&sql).await;
        if rows[0]["state"] == "cancelled" {
            Ok(())
        } else {
            Err(rows)
        }
    })
    .await;
}
