//! Compensations that wait for a person: they failed, or can't be made, or it is not sure that the effect is ours.

use serde_json::json;
use uuid::Uuid;

use super::{UNDOES, assert_says, shown, thing, unsealed, until_batch, until_finished};
use crate::{
    commands::{json_of, says, stderr, stdout},
    harness::{Bed, app::Call, leaf::Reply, sidecar::Sidecar, wait::until},
};

/// A batch that has failed, and whose newer effect, that of `site`, the leaf refuses to undo.
struct Incomplete {
    sidecar: Sidecar,
    batch: Uuid,
    /// The batch's id as the commands take it.
    id: String,
    repository: i64,
    site: i64,
    /// The call that should undo the site.
    undo: String,
}

impl Incomplete {
    async fn new(bed: &Bed) -> Self {
        bed.leaf.always().key("dns").refuses(422);
        let refusal = Reply::json(403, &json!({ "error": "the site is locked" }));
        let site = bed.leaf.always().key("site").method("DELETE");
        site.refuses(refusal);
        let config = bed.config(UNDOES).dispatch("stuck_after = \"1s\"");
        let sidecar = config.start().await;
        let batch = unsealed(&bed.app).await;
        let [repository, site] = [
            confirmed(bed, thing("repository").batch(batch)).await,
            confirmed(bed, thing("site").batch(batch)).await,
        ];
        bed.app.insert(thing("dns").batch(batch)).await;
        let shown = until_batch(&sidecar, batch, "reason", "teardown_incomplete").await;
        let undo = shown["compensation"][0]["id"].to_string();
        Self {
            sidecar,
            batch,
            id: batch.to_string(),
            repository,
            site,
            undo,
        }
    }
}

async fn confirmed(bed: &Bed, call: Call) -> i64 {
    let id = bed.app.insert(call).await;
    bed.app.until_state(id, "confirmed").await;
    id
}

#[tokio::test]
async fn a_teardown_that_can_not_go_on_shows_what_is_in_its_way() {
    let bed = Bed::new().await;
    let Incomplete {
        sidecar,
        batch,
        id,
        repository,
        site,
        undo,
    } = Incomplete::new(&bed).await;
    let incomplete = json_of(&sidecar, &["batch", &id, "--json"]).await;
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
                "  call {}  leaf site: call {undo}, which would undo it, failed (rejected, status 403)\n",
                site
            ),
            "\n      the leaf said: {\"error\":\"the site is locked\"}\n",
            &format!("      leafhopper retry {undo} --reason '…'\n"),
            &format!("  call {}  leaf repository: not its turn yet", repository),
        ],
    );
    let text = shown(&sidecar, &["show", &undo]).await;
    assert_says(
        &text,
        &[
            &format!(
                "the effect of call {} stands, and the teardown of its batch waits",
                site
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
}

#[tokio::test]
async fn a_teardown_that_can_not_go_on_does_once_that_is_waived() {
    let bed = Bed::new().await;
    let Incomplete {
        sidecar,
        batch,
        id,
        repository,
        site,
        undo,
    } = Incomplete::new(&bed).await;
    // Tried again, the leaf refuses again. Nobody can cancel it, or say of what is no compensation that it is waived.
    says(&sidecar, 0, &["retry", &undo, "--reason", "perhaps"]).await;
    bed.app.until_state(undo.parse().unwrap(), "failed").await;
    let waive = ["resolve", "--waive", "--reason", "the customer keeps it"];
    let other = repository.to_string();
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
    assert!(
        dry.contains(&format!("{undo}  leaf ")) && dry.contains("ATTEMPTS"),
        "{dry}"
    );
    let dry = json_of(
        &sidecar,
        &[&by_filter[..], &["--dry-run", "--json"]].concat(),
    )
    .await;
    assert_eq!(dry[0]["id"].to_string(), undo);
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
                site
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
async fn an_undo_that_can_not_be_made_says_what_is_wrong_with_it() {
    let bed = Bed::new().await;
    bed.leaf.always().key("bad").refuses(422);
    let sidecar = bed.sidecar(UNDOES).await;
    let batch = unsealed(&bed.app).await;
    let path = json!({"method": "DELETE", "path": "/{{ result.body.gone }}"});
    let nameless = thing("nameless").set("compensate", path);
    confirmed(&bed, nameless.batch(batch)).await;
    bed.app.insert(thing("bad").batch(batch)).await;

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
    until_finished(&bed.app, batch).await;
    assert_eq!(bed.leaf.standing("nameless"), 1);
}

#[tokio::test]
async fn what_was_adopted_without_a_matcher_is_undone_once_a_person_says_that_it_is_ours() {
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
    bed.app.insert(thing("bad").batch(batch)).await;

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
    assert_eq!(bed.leaf.standing("weak"), 0);
}
