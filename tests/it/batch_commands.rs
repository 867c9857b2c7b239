//! The commands for batches: the list, one batch in each state that somebody asks about, its cancel, and the word that
//! an effect stands.

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

async fn until_finished(app: &App, batch: Uuid) {
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
            &format!("It was cancelled since call {dns} failed (rejected)."),
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
    let over = shown(&sidecar, &["batch", &id]).await;
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
    let over = json_of(&sidecar, &["batch", &id, "--json"]).await;
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
    let undo = shown(&sidecar, &["show", &undo]).await;
    assert_says(&undo, &[&format!("The effect of call {site} is undone")]);
}

#[tokio::test]
async fn a_teardown_that_can_not_go_on_shows_why_until_it_is_waived() {
    let bed = Bed::new().await;
    bed.leaf.always().key("dns").refuses(422);
    bed.leaf.always().key("site").method("DELETE").refuses(403);
    let sidecar = bed
        .config(UNDOES)
        .dispatch("stuck_after = \"1s\"")
        .start()
        .await;
    let batch = unsealed(&bed.app).await;
    let id = batch.to_string();
    let mut ids = Vec::new();
    for key in ["repository", "site"] {
        let call = bed.app.insert(thing(key).batch(batch)).await;
        bed.app.until_state(call, "confirmed").await;
        ids.push(call);
    }
    bed.app.insert(thing("dns").batch(batch)).await;
    let incomplete = until_batch(&sidecar, batch, "reason", "teardown_incomplete").await;
    let undo = incomplete["compensation"][0]["id"].to_string();
    assert_eq!(
        incomplete["commands"][2],
        format!("leafhopper resolve {undo} --waive --reason '…'")
    );
    assert_eq!(
        (&incomplete["standing"], &incomplete["state"]),
        (&json!(2), &json!("compensating"))
    );
    let text = shown(&sidecar, &["batch", &id]).await;
    assert_says(
        &text,
        &[
            "compensating: teardown_incomplete",
            "A call that undoes an effect has failed or is parked",
            &format!(
                "  call {}  leaf site: call {undo}, which would undo it, failed (rejected)",
                ids[1]
            ),
            &format!("      leafhopper retry {undo} --reason '…'\n"),
            &format!("  call {}  leaf repository: not its turn yet", ids[0]),
        ],
    );
    let text = shown(&sidecar, &["show", &undo]).await;
    assert_says(
        &text,
        &[
            &format!(
                "the effect of call {} stands, and the teardown of its batch waits",
                ids[1]
            ),
            "--waive",
        ],
    );
    until_batch(&sidecar, batch, "stuck", true).await;
    let stuck = json_of(&sidecar, &["batches", "--stuck", "--json"]).await;
    assert_eq!(
        (stuck.as_array().unwrap().len(), &stuck[0]["id"]),
        (1, &json!(id))
    );

    // Tried again, the leaf refuses again. Nobody can cancel it, or say of what is no compensation that it is waived.
    says(&sidecar, 0, &["retry", &undo, "--reason", "perhaps"]).await;
    bed.app.until_state(undo.parse().unwrap(), "failed").await;
    let waive = ["resolve", "--waive", "--reason", "the customer keeps it"];
    let other = ids[0].to_string();
    for (code, words) in [
        (1, &[other.as_str()][..]),
        (1, &[&undo, "--expect-attempts", "9"]),
        (2, &[&undo, "--confirmed"]),
        (2, &["--batch", &id]),
    ] {
        says(&sidecar, code, &[&waive[..], words].concat()).await;
    }
    let by_filter = [&waive[..], &["--batch", &id]].concat();
    let dry = stdout(&says(&sidecar, 0, &[&by_filter[..], &["--dry-run"]].concat()).await);
    assert_eq!(dry, format!("{undo}\n"));
    let waived = stdout(&says(&sidecar, 0, &[&by_filter[..], &["--yes"]].concat()).await);
    assert_eq!(waived, format!("call {undo}: cancelled\n"));
    until_finished(&bed.app, batch).await;
    let over = shown(&sidecar, &["batch", &id]).await;
    assert_says(
        &over,
        &[
            "cancelled",
            "One effect of it stands",
            &format!(
                "Stands\n  call {}  leaf site: waived: the customer keeps it\n",
                ids[1]
            ),
        ],
    );
    let text = shown(&sidecar, &["show", &undo]).await;
    assert_says(
        &text,
        &["cancelled: waived", "It was waived: the effect of call"],
    );
    assert_eq!(
        (bed.leaf.standing("repository"), bed.leaf.standing("site")),
        (0, 1)
    );
    let again = stderr(&says(&sidecar, 1, &[&waive[..], &[&undo]].concat()).await);
    assert!(
        again.contains("neither failed nor parked but waived"),
        "{again}"
    );
}

#[tokio::test]
async fn what_waits_for_a_person_before_it_is_undone_says_what_to_say() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .key("weak")
        .method("POST")
        .times(1)
        .resets();
    bed.leaf.always().key("bad").refuses(422);
    let config = bed.config(UNDOES);
    let probe = "[leaf.leaf.probe]\npath = \"/effects/{{ call.key }}\"\nsettle = \"100ms\"\n";
    let sidecar = config.toml(probe).start().await;
    let batch = unsealed(&bed.app).await;
    let id = batch.to_string();
    let weak = bed.app.insert(thing("weak").batch(batch)).await;
    bed.app.until_state(weak, "confirmed").await;
    let nameless = thing("nameless").set(
        "compensate",
        json!({"method": "DELETE", "path": "/{{ result.body.gone }}"}),
    );
    let nameless = bed.app.insert(nameless.batch(batch)).await;
    bed.app.until_state(nameless, "confirmed").await;
    bed.app.insert(thing("bad").batch(batch)).await;

    // The newest first: its request can't be made.
    let waits = until_batch(&sidecar, batch, "reason", "teardown_incomplete").await;
    assert_eq!(waits["effect"][0]["compensation_reason"], "template");
    let undo = waits["compensation"][0]["id"].to_string();
    let text = shown(&sidecar, &["show", &undo]).await;
    assert_says(
        &text,
        &[
            "parked: template",
            "the request is made anew",
            "its compensation: path: ",
            "--not-executed",
            "--waive",
        ],
    );
    says(&sidecar, 0, &["resolve", &undo, "--waive", "--reason", "r"]).await;

    let undo = until("what was adopted is to be undone", async || {
        let batch = json_of(&sidecar, &["batch", &id, "--json"]).await;
        let parked = &batch["waits_for"][0];
        if parked["reason"] == "weak_adoption" {
            Ok(parked["id"].to_string())
        } else {
            Err(batch)
        }
    })
    .await;
    let text = shown(&sidecar, &["batch", &id]).await;
    assert_says(
        &text,
        &[
            "parked: weak_adoption, stuck",
            &format!(
                "call {weak}  leaf weak: adopted without a matcher, so it is not surely ours; call {undo} waits for a word"
            ),
            "waived: r",
        ],
    );
    let text = shown(&sidecar, &["show", &undo]).await;
    assert_says(
        &text,
        &[
            "adopted without a matcher",
            &format!("leafhopper resolve {undo} --not-executed"),
            "--confirmed",
            "--waive",
        ],
    );
    let no_send = [
        "resolve",
        &undo,
        "--not-executed",
        "--no-send",
        "--reason",
        "r",
    ];
    let refused = stderr(&says(&sidecar, 1, &no_send).await);
    assert!(refused.contains("waive"), "{refused}");
    assert_eq!(bed.leaf.standing("weak"), 1);
    says(
        &sidecar,
        0,
        &["resolve", &undo, "--not-executed", "--reason", "it is ours"],
    )
    .await;
    until_finished(&bed.app, batch).await;
    assert_eq!(
        (bed.leaf.standing("weak"), bed.leaf.standing("nameless")),
        (0, 1)
    );
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

#[tokio::test]
async fn a_person_cancels_a_batch_that_has_no_row_yet() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar(UNDOES).await;
    let batch = Uuid::new_v4();
    let id = batch.to_string();
    let sql = format!(
        "INSERT INTO leafhopper.outbox (leaf, path, batch_id) SELECT 'nobody', '/x', '{batch}' FROM generate_series(1, 70)"
    );
    bed.app.execute(&sql).await;
    let listed = json_of(&sidecar, &["batches", "--state", "open", "--json"]).await;
    assert_eq!(
        (
            &listed[0]["id"],
            &listed[0]["sealed"],
            &listed[0]["calls"],
            &listed[1]
        ),
        (
            &json!(id),
            &json!(true),
            &json!({"pending": 70}),
            &Value::Null
        )
    );
    // Of many the first are shown, and how many are not.
    let text = shown(&sidecar, &["batch", &id]).await;
    assert_says(
        &text,
        &[
            "waits for 70 calls",
            "pending: leaf_unknown",
            "… and 50 more: leafhopper calls --batch",
        ],
    );
    let whole = json_of(&sidecar, &["batch", &id, "--json"]).await;
    assert_eq!(
        whole["left_out"],
        json!({"ready": 20, "compensation": 0, "follow_up": 0, "waits_for": 20, "effect": 0})
    );

    let cancel = ["cancel-batch", &id, "--reason", "ordered twice"];
    let asked = stderr(&says(&sidecar, 2, &cancel).await);
    assert_says(&asked, &["--yes", "open; calls: 70 pending"]);
    says(&sidecar, 2, &["cancel-batch", &id, "--yes"]).await;
    let said = stdout(&says(&sidecar, 0, &[&cancel[..], &["--yes"]].concat()).await);
    assert_eq!(said, format!("batch {id}: cancelling\n"));
    until_finished(&bed.app, batch).await;
    let text = shown(&sidecar, &["batch", &id]).await;
    assert_says(
        &text,
        &[
            "It was cancelled by ",
            "(ordered twice). Nothing of it was to be undone.",
            "70 cancelled",
        ],
    );
    let actions =
        "SELECT action, batch_id, reason, actor <> '' AS named FROM leafhopper.operator_action";
    assert_eq!(
        bed.app.rows(actions).await,
        [
            json!({"action": "cancel_batch", "batch_id": id, "reason": "ordered twice", "named": true})
        ]
    );
    let call = json_of(
        &sidecar,
        &["calls", "--batch", &id, "--limit", "1", "--json"],
    )
    .await;
    let call = shown(&sidecar, &["show", &call[0]["id"].to_string()]).await;
    assert_says(
        &call,
        &[
            "Its batch was cancelled before it was sent.",
            &format!("leafhopper batch {id}"),
        ],
    );
}

#[tokio::test]
async fn lists_of_batches_go_on_where_they_ended_and_unknown_ones_are_a_fault() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar(UNDOES).await;
    let sql = "INSERT INTO leafhopper.batch (id, created_at, sealed) \
               SELECT gen_random_uuid(), now() - interval '1 s' * (n / 2), false FROM generate_series(1, 130) AS n";
    bed.app.execute(sql).await;
    let newest = "SELECT id FROM leafhopper.batch ORDER BY created_at DESC, id DESC";
    let expected: Vec<Value> = bed
        .app
        .rows(newest)
        .await
        .iter()
        .map(|row| row["id"].clone())
        .collect();
    let mut found: Vec<Value> = Vec::new();
    for (limit, pages) in [("120", 1), ("5", 2)] {
        for _ in 0..pages {
            let mut arguments = vec!["batches", "--json", "--limit", limit];
            let after = found.last().map(|id| id.as_str().unwrap().to_owned());
            if let Some(after) = &after {
                arguments.extend(["--after", after]);
            }
            let page = json_of(&sidecar, &arguments).await;
            found.extend(
                page.as_array()
                    .unwrap()
                    .iter()
                    .map(|batch| batch["id"].clone()),
            );
        }
    }
    assert_eq!(found, expected);
    let said = says(&sidecar, 0, &["batches", "--limit", "2"]).await;
    let last = expected[1].as_str().unwrap();
    assert_says(
        &stderr(&said),
        &[&format!("2 batches; there may be more: --after {last}")],
    );
    assert_eq!(
        json_of(&sidecar, &["batches", "--state", "finished", "--json"]).await,
        json!([])
    );

    let unknown = Uuid::new_v4().to_string();
    for arguments in [
        &["batch", &unknown][..],
        &["batches", "--after", &unknown],
        &["cancel-batch", &unknown, "--reason", "r", "--yes"],
    ] {
        let said = stderr(&says(&sidecar, 1, arguments).await);
        assert_says(&said, &[&format!("there is no batch {unknown}")]);
    }
    says(&sidecar, 2, &["batch", "5"]).await;
}
