//! The commands for batches: the list, one batch in each state that somebody asks about, its cancel, and the word that
//! an effect stands.

mod lists;
mod undoing;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    commands::{json_of, says, stderr, stdout},
    harness::{
        Bed,
        app::{App, Call, keyed},
        leaf::Gate,
        sidecar::Sidecar,
        wait::until,
    },
};

const UNDOES: &str = "concurrency = 8\nretry = { initial = \"20ms\", max = \"50ms\" }\n\
     compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";

fn thing(key: &str) -> Call {
    keyed("leaf", key)
}

/// A batch that takes calls in several transactions.
async fn unsealed(app: &App) -> Uuid {
    let batch = Uuid::new_v4();
    let sql = format!(
        "INSERT INTO leafhopper.batch (id, name, sealed) VALUES ('{batch}', 'site 42', false)"
    );
    app.execute(&sql).await;
    batch
}

async fn until_batch(
    sidecar: &Sidecar,
    batch: Uuid,
    field: &str,
    value: impl Into<Value>,
) -> Value {
    let (id, value) = (batch.to_string(), value.into());
    until(&format!("{field} of batch {id} is {value}"), async || {
        let batch = json_of(sidecar, &["batch", &id, "--json"]).await;
        if batch[field] == value {
            Ok(batch)
        } else {
            Err(batch)
        }
    })
    .await
}

pub(crate) async fn until_finished(app: &App, batch: Uuid) {
    let sql = format!("SELECT state, finished_at FROM leafhopper.batch WHERE id = '{batch}'");
    until("the batch is finished", async || {
        let row = app.rows(&sql).await.pop().unwrap_or_default();
        if row["finished_at"].is_null() {
            Err(row)
        } else {
            Ok(())
        }
    })
    .await;
}

/// What the command says of it, to a person.
async fn shown(sidecar: &Sidecar, arguments: &[&str]) -> String {
    stdout(&says(sidecar, 0, arguments).await)
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[tokio::test]
async fn a_batch_that_is_cancelled_shows_what_it_waits_for_and_then_what_was_undone() {
    let bed = Bed::new().await;
    let flying = Gate::closed();
    let site = bed.leaf.always().key("site").method("POST");
    site.waits_before_the_effect(&flying).answers(201);
    bed.leaf.always().key("dns").refuses(422);
    let sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let id = batch.to_string();
    let repository = bed.app.insert(thing("repository").batch(batch)).await;
    bed.app.until_state(repository, "confirmed").await;
    let open = shown(&sidecar, &["batch", &id]).await;
    assert_says(&open, &["open", "site 42", "sealed          false"]);
    let site = bed.app.insert(thing("site").batch(batch)).await;
    flying.until_arrived(1).await;
    let dns = bed.app.insert(thing("dns").batch(batch)).await;
    let told = thing("told").batch(batch).set("run_when", "batch_settled");
    let told = bed.app.insert(told).await;
    until_batch(&sidecar, batch, "state", "cancelling").await;

    let waits = shown(&sidecar, &["batch", &id]).await;
    assert_says(
        &waits,
        &[
            &format!("It was cancelled because call {dns} failed (rejected)."),
            "is final (1 call), what was confirmed is undone",
            &format!("Waits for\n  call {site}  leaf site  dispatching\n"),
            &format!(
                "Stands\n  call {repository}  leaf repository: undone once the batch has settled"
            ),
            "batch_settled",
            "1 confirmed, 1 failed",
        ],
    );
    let listed = json_of(&sidecar, &["batches", "--state", "cancelling", "--json"]).await;
    assert_eq!(
        (
            &listed[0]["id"],
            &listed[0]["name"],
            &listed[0]["calls"],
            &listed[0]["standing"]
        ),
        (
            &json!(id),
            &json!("site 42"),
            &json!({"confirmed": 1, "dispatching": 1, "failed": 1, "pending": 1}),
            &json!(1)
        )
    );
    let waiting = shown(&sidecar, &["show", &told.to_string()]).await;
    assert_says(
        &waiting,
        &[
            "it is sent once all else of the batch is final",
            "cancelling",
            &format!("leafhopper batch {id}"),
        ],
    );
    let cancel = ["cancel-batch", &id, "--reason", "once more", "--yes"];
    let refused = stderr(&says(&sidecar, 1, &cancel).await);
    assert!(refused.contains("is already cancelling"), "{refused}");

    flying.open();
    until_finished(&bed.app, batch).await;
    shows_that_both_are_undone(&sidecar, &id, [repository, site]).await;
}

async fn shows_that_both_are_undone(sidecar: &Sidecar, id: &str, calls: [i64; 2]) {
    let [repository, site] = calls;
    let over = shown(sidecar, &["batch", id]).await;
    assert_says(
        &over,
        &[
            "cancelled",
            "All that was confirmed of it is undone. It takes no more calls.",
            "undone          2",
        ],
    );
    assert!(
        !over.contains("Stands") && !over.contains("Waits for"),
        "{over}"
    );
    let over = json_of(sidecar, &["batch", id, "--json"]).await;
    assert_eq!(
        over["calls_by_kind"]["compensation"],
        json!({"confirmed": 2})
    );
    let undoes: Vec<&Value> = over["compensation"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["undoes"])
        .collect();
    assert_eq!(undoes, [&json!(site), &json!(repository)]);
    assert_eq!((&over["standing"], &over["undone"]), (&json!(0), &json!(2)));
    let undo = over["compensation"][0]["id"].to_string();
    let undo = shown(sidecar, &["show", &undo]).await;
    assert_says(&undo, &[&format!("The effect of call {site} is undone")]);
}

#[tokio::test]
async fn a_batch_that_nobody_seals_is_said_to_be_so_and_succeeds_once_it_is_sealed() {
    let bed = Bed::new().await;
    let sidecar = bed
        .config(UNDOES)
        .dispatch("stuck_after = \"1s\"")
        .start()
        .await;
    let batch = unsealed(&bed.app).await;
    let id = batch.to_string();
    let empty = shown(&sidecar, &["batch", &id]).await;
    assert_says(&empty, &["open", "leafhopper.seal()"]);
    let call = bed.app.insert(thing("a").batch(batch)).await;
    bed.app.until_state(call, "confirmed").await;
    let idle = until_batch(&sidecar, batch, "stuck", true).await;
    assert_eq!(
        (&idle["state"], &idle["reason"], &idle["commands"]),
        (
            &json!("open"),
            &json!("unsealed"),
            &json!([format!("leafhopper cancel-batch {id} --reason '…'")])
        )
    );
    let listed = shown(&sidecar, &["batches"]).await;
    assert_says(&listed, &["open: unsealed, stuck", "1 confirmed"]);
    bed.app
        .execute(&format!("SELECT leafhopper.seal('{batch}')"))
        .await;
    until_finished(&bed.app, batch).await;
    let over = shown(&sidecar, &["batch", &id]).await;
    assert_says(
        &over,
        &[
            "succeeded",
            "All its calls are confirmed. It takes no more calls.",
            "standing        1",
        ],
    );
    assert!(!over.contains("Stands"), "{over}");
}
