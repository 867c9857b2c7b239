//! What is peculiar to one service.

use serde_json::json;

use super::{Recipe, Scene, documented, example, in_a_hurry, sidecar};
use crate::harness::{
    Bed,
    leaf::{Reply, Request},
    sidecar::Config,
};

#[tokio::test]
async fn github_s_limits_are_waited_for_though_they_answer_403() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    let limits = [
        Reply::json(
            403,
            &json!({ "message": "API rate limit exceeded for user ID 1." }),
        ),
        Reply::json(
            403,
            &json!({ "message": "You have exceeded a secondary rate limit." }),
        ),
        Reply::json(403, &json!({ "message": "Slow down" })).header("x-ratelimit-remaining", "0"),
        Reply::json(403, &json!({ "message": "Slow down" })).header("retry-after", "0"),
    ];
    for (number, limit) in limits.into_iter().enumerate() {
        let what = format!("limit-{number}");
        let scene = Scene::begin(&bed, &documented::GITHUB, &what, |create, _, _| {
            create().times(1).refuses(limit);
        });
        let scene = scene.await;
        scene.until_confirmed("response").await;
        assert_eq!(bed.app.history(scene.call).await, "retry 403");
    }
    let forbidden = Scene::begin(&bed, &documented::GITHUB, "forbidden", |create, _, _| {
        let reply = Reply::json(403, &json!({ "message": "Resource not accessible" }));
        create().refuses(reply.header("x-ratelimit-remaining", "4999"));
    });
    let forbidden = forbidden.await;
    bed.app.until_state(forbidden.call, "failed").await;
}

#[tokio::test]
async fn slack_s_words_are_read() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    let recipe = &documented::SLACK;
    let error = |word: &str| Reply::json(200, &json!({ "ok": false, "error": word }));
    for (what, reply, history) in [
        ("limited", error("ratelimited"), "retry 200"),
        ("token", error("token_revoked"), "retry 200"),
        (
            "fatal",
            error("fatal_error"),
            "in_doubt 200, probe_absent 200",
        ),
        (
            "proxy",
            Reply::bytes(200, "<html>"),
            "in_doubt 200, probe_absent 200",
        ),
    ] {
        let scene = Scene::begin(&bed, recipe, what, |create, asked, _| {
            create().times(1).refuses(reply);
            asked(recipe.absent.0, recipe.absent.1);
        });
        let scene = scene.await;
        scene.until_confirmed("response").await;
        assert_eq!(bed.app.history(scene.call).await, history, "{what}");
        assert_eq!(scene.creates(), 2, "{what}");
    }
}

#[tokio::test]
async fn slack_s_history_is_not_believed_where_it_is_not_whole() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    let recipe = &documented::SLACK;
    for (what, answer) in [
        (
            "more",
            json!({ "ok": true, "has_more": true, "messages": [] }),
        ),
        ("refused", json!({ "ok": false, "error": "missing_scope" })),
    ] {
        let scene = Scene::begin(&bed, recipe, what, |create, asked, _| {
            create().resets();
            asked(200, &answer.to_string());
        });
        let scene = scene.await;
        scene.until_parked("probe_unclear").await;
        assert_eq!(scene.creates(), 1, "{what}");
    }
}

#[tokio::test]
async fn what_is_deleted_in_slack_already_is_undone() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    let gone = Recipe {
        undone: (200, r#"{"ok": false, "error": "message_not_found"}"#),
        ..documented::SLACK
    };
    let scene = Scene::begin(&bed, &gone, "gone", |_, _, _| {}).await;
    scene.until_confirmed("response").await;
    scene.is_undone().await;
}

fn keys_of(requests: &[Request]) -> Vec<&str> {
    let keys = requests
        .iter()
        .map(|request| request.header("idempotency-key"));
    keys.map(Option::unwrap).collect()
}

#[tokio::test]
async fn stripe_is_sent_the_same_key_and_asked_where_that_says_nothing() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    let recipe = &documented::STRIPE;
    let at = format!("/stripe-payments{}", recipe.create);
    let posts = |scene: &Scene<'_>| -> Vec<Request> {
        let own = |request: &Request| {
            request.path == at && String::from_utf8_lossy(&request.body).contains(&scene.key)
        };
        let all = bed.leaf.all_requests();
        all.into_iter().filter(own).collect()
    };
    // No answer; and another request of the key that is still at work.
    for what in ["lost", "busy"] {
        let scene = Scene::begin(&bed, recipe, what, |create, _, _| match what {
            "lost" => create().times(1).resets(),
            _ => create().times(1).refuses(409),
        });
        let scene = scene.await;
        scene.until_confirmed("response").await;
        assert_eq!(keys_of(&posts(&scene)), [scene.key.as_str(); 2], "{what}");
        scene.is_undone().await;
    }
    // It repeats a 500 for as long as it knows the key.
    for (what, answer) in [("found", recipe.found), ("theirs", recipe.theirs)] {
        let scene = Scene::begin(&bed, recipe, what, |create, asked, _| {
            create().times(2).refuses(500);
            asked(200, answer);
        });
        let scene = scene.await;
        if what == "found" {
            scene.until_confirmed("adopted").await;
            assert_eq!(keys_of(&posts(&scene)), [scene.key.as_str(); 2]);
            scene.is_undone().await;
        } else {
            scene.until_confirmed("response").await;
            assert_eq!(posts(&scene).len(), 3);
        }
    }
    let probes = bed.leaf.all_requests();
    let asked = probes.iter().filter(|request| request.method == "GET");
    for request in asked {
        assert!(
            request
                .path
                .contains("query=metadata%5B%22leafhopper%22%5D%3A%22order%3A4711")
        );
    }
}

#[tokio::test]
async fn a_webhook_is_sent_again_under_the_id_that_its_receiver_dedups_by() {
    let bed = Bed::new().await;
    let toml = in_a_hurry(
        documented::WEBHOOK,
        "https://hooks.example.com",
        &bed.leaf.url(),
    );
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let config = Config::new(&bed.database.url)
        .toml("[retry]\ninitial = \"20ms\"\njitter = 0.0")
        .toml(&toml);
    let _sidecar = config
        .sidecar()
        .environment("WEBHOOK_SECRET", secret)
        .start()
        .await;
    bed.leaf.always().answers(200);
    bed.leaf.always().times(1).resets();
    // An id can't hold a full stop; the header is there once.
    let sql = example(documented::WEBHOOK).replace("invoice:815", "invoice.815");
    let sql = format!("{sql} RETURNING id");
    let id = bed.app.client().query_one(&sql, &[]).await.unwrap().get(0);
    bed.app.until_state(id, "confirmed").await;
    let requests = bed.leaf.all_requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        let ids = request
            .headers
            .iter()
            .filter(|(name, _)| name == "webhook-id");
        let ids: Vec<_> = ids.map(|(_, id)| id.as_str()).collect();
        assert_eq!(ids, [requests[0].header("webhook-id").unwrap()]);
        assert!(ids[0].starts_with("lh-"), "{ids:?}");
        crate::signing::assert_signed(request, secret);
    }
}
