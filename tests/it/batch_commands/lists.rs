//! Lists of batches, batches without a row, batches with many calls, and the cancel of one.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{UNDOES, assert_says, shown, until_finished};
use crate::{
    commands::{json_of, says, stderr, stdout},
    harness::Bed,
};

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
