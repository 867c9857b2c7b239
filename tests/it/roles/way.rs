//! The whole way of a call with a sidecar that may do what a sidecar needs, and nothing else; people with roles of their own.
//!
//! `make least` runs whole files of tests this way.

use std::process::Output;

use leafhopper::store::roles::Kind;
use uuid::Uuid;

use super::Login;
use crate::{
    commands::{stderr, stdout},
    harness::{
        Bed,
        app::keyed,
        database::{Database, ROLE_PASSWORD, as_role},
        sidecar::{Config, Sidecar, Starter},
        wait::until,
    },
};

const QUICK: &str = "timeout = \"10s\"\n\
    retry = { initial = \"20ms\", max = \"50ms\", jitter = 0.0, max_attempts = 3 }\n\
    compensate = { method = \"DELETE\", path = \"/effects/{{ call.key }}\" }";

/// No statement of a sidecar's was refused for want of a right.
fn was_never_refused(sidecar: &Sidecar) {
    let refused = |line: &serde_json::Value| line.to_string().contains("permission denied");
    let refusals: Vec<_> = sidecar.log().into_iter().filter(refused).collect();
    assert!(refusals.is_empty(), "{refusals:#?}");
}

#[tokio::test]
async fn a_sidecar_with_a_sidecar_s_rights_goes_the_whole_way() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").key("lost").nth(1).resets();
    bed.leaf.on("/things").key("refused").refuses(422);
    let config = bed
        .least_config(QUICK)
        .probe("leaf", "settle = \"300ms\"\nmax_probes = 3");
    let mut sidecar = config.start().await;
    for key in ["plain", "lost"] {
        let id = bed.app.insert(keyed("leaf", key)).await;
        bed.app.until_state(id, "confirmed").await;
    }
    for n in 0..2 {
        let ordered = keyed("leaf", &format!("ordered {n}")).set("ordering_key", "o");
        let id = bed.app.insert(ordered).await;
        bed.app.until_state(id, "confirmed").await;
    }
    let expired = keyed("leaf", "late").set("deadline", "-infinity");
    let expired = bed.app.insert(expired).await;
    bed.app.until_state(expired, "expired").await;
    let untracked = "SET session_replication_role = replica; \
         INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES ('leaf', 'untracked', '/things', '{\"key\": \"untracked\"}'); \
         SET session_replication_role = origin";
    bed.app.execute(untracked).await;
    until("the untracked one is confirmed", async || {
        let found = bed.app.results("leaf", "untracked").await;
        if found.len() == 1 { Ok(()) } else { Err(found) }
    })
    .await;
    fails_a_batch(&bed).await;
    bed.leaf.assert_each_effect_once([
        "plain",
        "lost",
        "ordered 0",
        "ordered 1",
        "untracked",
        "made",
    ]);
    assert_eq!(sidecar.get("/metrics").await.0, 200);
    assert_eq!(sidecar.get("/api/v1/calls").await.0, 200);
    assert!(sidecar.stop().await.success());
    was_never_refused(&sidecar);

    let told = sidecar.command(&["check"]).await;
    let text = stdout(&told);
    assert!(
        told.status.success() && text.contains("all that a sidecar needs"),
        "{text}"
    );
    let url = bed.database.sidecar_url();
    let role = url.split(['/', ':']).nth(3).unwrap();
    bed.app
        .execute(&format!(
            "REVOKE DELETE ON leafhopper.dispatch FROM \"{role}\"; \
             REVOKE UPDATE (body) ON leafhopper.outbox FROM \"{role}\"; \
             REVOKE EXECUTE ON FUNCTION leafhopper.wake() FROM \"{role}\"; \
             REVOKE UPDATE ON SEQUENCE leafhopper.sleeping_until FROM \"{role}\""
        ))
        .await;
    let told = sidecar.command(&["check"]).await;
    let text = stdout(&told);
    let lacks = "the role lacks DELETE on leafhopper.dispatch, EXECUTE on function leafhopper.wake(), \
                 UPDATE (method, path, body) on leafhopper.outbox, \
                 UPDATE on the sequence leafhopper.sleeping_until";
    assert!(!told.status.success() && text.contains(lacks), "{text}");
}

/// A batch whose second call the leaf refuses: the first one's effect is undone.
async fn fails_a_batch(bed: &Bed) {
    let batch = Uuid::new_v4();
    bed.app
        .execute(&format!(
            "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
        ))
        .await;
    let made = bed.app.insert(keyed("leaf", "made").batch(batch)).await;
    bed.app.until_state(made, "confirmed").await;
    let after = keyed("leaf", "after")
        .batch(batch)
        .set("run_when", "batch_failed");
    let after = bed.app.insert(after).await;
    bed.app.insert(keyed("leaf", "refused").batch(batch)).await;
    bed.app.until_state(after, "confirmed").await;
    until(
        "the batch is cancelled, and its effect undone",
        async || {
            let row =
                format!("SELECT state, finished_at FROM leafhopper.batch WHERE id = '{batch}'");
            let row = bed.app.rows(&row).await.remove(0);
            let over = row["state"] == "cancelled" && !row["finished_at"].is_null();
            if over && bed.leaf.standing("made") == 0 {
                Ok(())
            } else {
                Err(row)
            }
        },
    )
    .await;
}

async fn run(as_role: &Starter, line: &str) -> Output {
    let words: Vec<&str> = line.split(' ').collect();
    as_role.command(&words).await
}

async fn does(as_role: &Starter, line: &str) {
    let output = run(as_role, line).await;
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Each way of looking.
async fn looks_at_all(as_role: &Starter, [parked, refused]: [i64; 2], batch: Uuid) {
    for line in [
        "calls --json".to_owned(),
        "calls --stuck --state parked".to_owned(),
        format!("show {parked}"),
        format!("show {refused} --json"),
        "batches".to_owned(),
        format!("batch {batch}"),
    ] {
        does(as_role, &line).await;
    }
}

/// Of a call that was sent again, and whose answer is lost once more; then of the database.
async fn says_what_is_true(bed: &Bed, acts: &Starter, parked: i64) {
    until("the parked one is parked again", async || {
        let call = bed.app.call(parked).await;
        if call["state"] == "parked" && call["attempts"] == 2 {
            Ok(())
        } else {
            Err(call)
        }
    })
    .await;
    does(
        acts,
        &format!("resolve {parked} --confirmed --status 201 --body {{}} --reason r"),
    )
    .await;
    assert_eq!(bed.app.state(parked).await, "confirmed");
    let actors =
        "SELECT DISTINCT actor FROM leafhopper.operator_action WHERE action = 'resolve_confirmed'";
    assert_eq!(bed.app.rows(actors).await.len(), 1);
    let halted = "UPDATE leafhopper.origin SET changed_at = now(), change = 'a test'";
    bed.app.execute(halted).await;
    does(acts, "resume --all --as resend --reason r").await;
}

#[tokio::test]
async fn people_look_and_act_by_roles_of_their_own() {
    let bed = Bed::new().await;
    let (operator, reader) = (
        Login::new(&bed, Kind::Operator).await,
        Login::new(&bed, Kind::ReadOnly).await,
    );
    let of = |login: &Login<'_>| {
        Config::new(&login.url())
            .leaf("leaf", &bed.leaf.url(), "")
            .sidecar()
    };
    let (acts, looks) = (of(&operator), of(&reader));
    bed.leaf.on("/things").key("parked").times(2).resets();
    bed.leaf.on("/things").key("refused").times(1).refuses(422);
    bed.leaf.on("/things").key("head").refuses(422);
    let sidecar = bed
        .least_config(&format!(
            "{QUICK}\nin_doubt = \"park\"\nafter_failed_head = \"hold\""
        ))
        .start()
        .await;
    let parked = bed.app.insert(keyed("leaf", "parked")).await;
    bed.app.until_state(parked, "parked").await;
    let refused = bed.app.insert(keyed("leaf", "refused")).await;
    bed.app.until_state(refused, "failed").await;
    let head = bed
        .app
        .insert(keyed("leaf", "head").set("ordering_key", "o"))
        .await;
    bed.app.until_state(head, "failed").await;
    let behind = bed
        .app
        .insert(keyed("leaf", "behind").set("ordering_key", "o"))
        .await;
    let batch = Uuid::new_v4();
    let later = keyed("leaf", "later").set("not_before", "2100-01-01T00:00:00Z");
    let member = bed.app.insert(later.clone().batch(batch)).await;
    let alone = bed.app.insert(later.key("alone")).await;

    for role in [&looks, &acts] {
        looks_at_all(role, [parked, refused], batch).await;
    }
    let acting = [
        "pause leaf --reason r".to_owned(),
        "resume leaf --reason r".to_owned(),
        format!("retry {refused} --reason r"),
        format!("resolve {parked} --not-executed --reason r"),
        format!("release {head} --reason r"),
        format!("cancel {alone} --reason r"),
        format!("cancel-batch {batch} --reason r --yes"),
    ];
    for line in &acting {
        let output = run(&looks, line).await;
        let said = stderr(&output);
        assert!(
            !output.status.success() && said.contains("permission denied"),
            "{line}: {said}"
        );
    }
    for line in &acting {
        does(&acts, line).await;
    }
    for (id, state) in [
        (refused, "confirmed"),
        (behind, "confirmed"),
        (alone, "cancelled"),
        (member, "cancelled"),
    ] {
        bed.app.until_state(id, state).await;
    }
    says_what_is_true(&bed, &acts, parked).await;
    was_never_refused(&sidecar);
    drop(sidecar);
    operator.drop().await;
    reader.drop().await;
}

#[tokio::test]
async fn who_lacks_a_right_is_told_what_grants_it() {
    let bed = Bed::new().await;
    let role: String = format!("n_{}", bed.database.name)
        .chars()
        .take(63)
        .collect();
    bed.app
        .execute(&format!(
            "CREATE ROLE \"{role}\" LOGIN PASSWORD '{ROLE_PASSWORD}'"
        ))
        .await;
    let nobody = Config::new(&as_role(&bed.database.url, &role)).sidecar();
    let empty = Database::empty().await;
    let newcomer = Config::new(&as_role(&empty.url, &role)).sidecar();
    for (told, wanted) in [
        (nobody.command(&["calls"]).await, "--grant-operator"),
        (
            newcomer.command(&["migrate"]).await,
            "GRANT CREATE ON DATABASE",
        ),
    ] {
        let said = String::from_utf8_lossy(&told.stderr);
        assert!(!told.status.success() && said.contains(wanted), "{said}");
    }
    bed.app.execute(&format!("DROP ROLE \"{role}\"")).await;
}
