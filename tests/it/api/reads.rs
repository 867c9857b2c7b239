//! What is read: pages, filters, and content that passes unread.

use serde_json::{Value, json};

use super::{Answer, Client};
use crate::harness::{
    Bed,
    app::{call, keyed},
};

fn ids(answer: &Value) -> Vec<i64> {
    let calls = answer["calls"].as_array().unwrap();
    calls
        .iter()
        .map(|call| call["id"].as_i64().unwrap())
        .collect()
}

/// The address of the next page, as the header has it.
fn next(answer: &Answer) -> Option<String> {
    let link = answer.header("link");
    let address = link.strip_prefix('<')?.strip_suffix(">; rel=\"next\"")?;
    Some(address.to_owned())
}

#[tokio::test]
async fn lists_come_in_pages_and_by_filters() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    let batch = uuid::Uuid::new_v4();
    let mut all = Vec::new();
    for n in 0..7 {
        // Nobody knows the leaf: they stay.
        all.push(
            bed.app
                .insert(call("gone & away").key(&format!("k{n}")).batch(batch))
                .await,
        );
    }
    let other = bed.app.insert(keyed("leaf", "other")).await;
    bed.app.until_state(other, "confirmed").await;

    let mut seen = Vec::new();
    let mut address = Some("/api/v1/calls?limit=3&leaf=gone%20%26%20away&first=oldest".to_owned());
    let mut pages = 0;
    while let Some(path) = address.take() {
        let answer = client.get(&path).await;
        address = next(&answer);
        let page = answer.expect(200);
        assert_eq!(page["next"].is_null(), address.is_none(), "{page}");
        seen.extend(ids(&page));
        pages += 1;
    }
    assert_eq!((seen, pages), (all.clone(), 3));
    let newest = client.get("/api/v1/calls?limit=1").await.expect(200);
    assert_eq!(ids(&newest), [other]);
    let before = client
        .get(&format!("/api/v1/calls?after={other}&limit=2"))
        .await
        .expect(200);
    assert_eq!(ids(&before), [all[6], all[5]]);

    for (query, expected) in [
        ("state=confirmed".to_owned(), vec![other]),
        ("key=k3".to_owned(), vec![all[3]]),
        (format!("batch={batch}&first=oldest"), all.clone()),
        ("reason=leaf_unknown&first=oldest".to_owned(), all.clone()),
        ("stuck=true&first=oldest".to_owned(), all.clone()),
        ("stuck=false&key=other".to_owned(), vec![other]),
        ("holds_others=true".to_owned(), vec![]),
        ("compensations=true".to_owned(), vec![]),
        ("state=failed".to_owned(), vec![]),
    ] {
        let found = client
            .get(&format!("/api/v1/calls?{query}"))
            .await
            .expect(200);
        assert_eq!(ids(&found), expected, "{query}");
    }

    let batches = client
        .get("/api/v1/batches?state=open&limit=1")
        .await
        .expect(200);
    assert_eq!(batches["batches"][0]["id"], json!(batch.to_string()));
    assert_eq!(batches["batches"][0]["calls"], json!({ "pending": 7 }));
    assert_eq!(batches["next"], Value::Null);
    let shown = client
        .get(&format!("/api/v1/batches/{batch}"))
        .await
        .expect(200);
    assert_eq!(shown["ready"].as_array().unwrap().len(), 7);
    let instances = client.get("/api/v1/instances").await.expect(200);
    assert_eq!(instances["instances"][0]["leaves"], json!(["leaf"]));
}

#[tokio::test]
async fn where_little_matches_no_request_looks_through_all_of_the_history() {
    let bed = Bed::new().await;
    bed.app
        .execute(
            "SET session_replication_role = replica; \
             INSERT INTO leafhopper.outbox (leaf, key, path) \
             SELECT 'leaf', 'k' || n, '/' FROM generate_series(1, 45000) n; \
             INSERT INTO leafhopper.result (leaf, key, generation, call_id, status, source) \
             VALUES ('leaf', 'k1', 1, 1, 200, 'response'); \
             INSERT INTO leafhopper.finished (call_id, state, reason) \
             SELECT id, 'cancelled', 'ordered twice' FROM leafhopper.outbox WHERE id > 1; \
             ANALYZE leafhopper.outbox, leafhopper.finished",
        )
        .await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    let mut address = Some("/api/v1/calls?state=confirmed".to_owned());
    let mut pages = Vec::new();
    while let Some(path) = address.take() {
        let answer = client.get(&path).await;
        address = next(&answer);
        pages.push(ids(&answer.expect(200)));
    }
    assert_eq!(pages, [vec![], vec![], vec![1]]);
}

#[tokio::test]
async fn what_is_not_understood_is_named_with_what_would_be_right() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    for (path, named, right) in [
        ("calls?state=open", "state", "`pending`, `dispatching`"),
        ("calls?stat=failed", "stat", "did you mean state?"),
        (
            "calls?nonsense=1",
            "nonsense",
            "There are: state, leaf, key",
        ),
        ("calls?limit=1001", "limit", "a number from 1 to 1000"),
        ("calls?limit=0", "limit", "a number from 1 to 1000"),
        ("calls?limit=ten", "limit", "a number from 1 to 1000"),
        ("calls?after=x", "after", "invalid digit"),
        ("calls?first=both", "first", "`newest` or `oldest`"),
        ("calls?stuck=yes", "stuck", "`true` or `false`"),
        ("calls?batch=1", "batch", "invalid length"),
        ("calls?leaf=a&leaf=b", "leaf", "given twice"),
        ("calls?key=a%00b", "key", "NUL"),
        ("batches?state=pending", "state", "`open`, `closing`"),
        ("batches?after=7", "after", "invalid"),
        ("jobs?limit=-1", "limit", "a number from 1 to 1000"),
        ("calls/seven", "seven", "i64"),
        ("batches/seven", "seven", "UUID"),
        ("jobs/1.5", "1.5", "i64"),
    ] {
        let answer = client.get(&format!("/api/v1/{path}")).await;
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.expect(400);
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains(named) && detail.contains(right),
            "{path}: {detail}"
        );
    }
    for path in [
        "calls/7",
        "batches/00000000-0000-0000-0000-000000000007",
        "jobs/7",
    ] {
        let problem = client.get(&format!("/api/v1/{path}")).await.expect(404);
        assert!(problem["detail"].as_str().unwrap().contains("there is no"));
    }
}

#[tokio::test]
async fn numbers_and_times_pass_unread() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let id = bed
        .app
        .insert_values(
            "key, body, deadline, leaf",
            "'k', '{\"n\": 1.10000000000000000000000000000001, \"big\": 12345678901234567890123}', 'infinity', 'gone'",
        )
        .await;
    let (status, text) = sidecar.get(&format!("/api/v1/calls/{id}")).await;
    assert_eq!(status, 200);
    for part in [
        "1.10000000000000000000000000000001",
        "12345678901234567890123",
        "\"deadline\":\"infinity\"",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// The parts of an answer's body that must not be shown.
const WORDS: [&str; 5] = [
    "secretly asked",
    "secretly answered",
    "secretly refused",
    "secretly worded",
    "secretly headed",
];

#[tokio::test]
async fn bodies_can_be_hidden() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .key("yes")
        .answers(crate::harness::leaf::Reply::json(
            200,
            &json!("secretly answered"),
        ));
    bed.leaf
        .always()
        .key("no")
        .refuses(crate::harness::leaf::Reply::json(
            422,
            &json!("secretly refused"),
        ));
    let hiding = bed.config("").listen("show_bodies = false").start().await;
    let showing = bed.sidecar("").await;
    let mut texts = [String::new(), String::new()];
    for (key, state) in [("yes", "confirmed"), ("no", "failed")] {
        let row = call("leaf")
            .key(key)
            .body(json!({ "key": key, "word": "secretly asked" }))
            .set("headers", json!({ "X-Word": "secretly headed" }));
        let id = bed.app.insert(row).await;
        bed.app.until_state(id, state).await;
        for (sidecar, text) in [&hiding, &showing].into_iter().zip(&mut texts) {
            let shown = Client::new(sidecar)
                .get(&format!("/api/v1/calls/{id}"))
                .await
                .expect(200);
            assert_eq!(shown["key"], json!(key));
            let hides = std::ptr::eq(sidecar, &raw const hiding);
            assert_eq!(shown.get("bodies_hidden").is_some(), hides);
            text.push_str(&shown.to_string());
        }
    }
    let job = json!({ "as": "confirmed", "body": "secretly worded", "filter": { "leaf": "leaf" }, "reason": "a test" });
    Client::new(&hiding)
        .post("/api/v1/calls/resolve", &job)
        .await
        .expect(202);
    for (sidecar, text) in [&hiding, &showing].into_iter().zip(&mut texts) {
        for path in ["/api/v1/jobs", "/api/v1/jobs/1"] {
            text.push_str(&Client::new(sidecar).get(path).await.expect(200).to_string());
        }
    }
    for word in WORDS {
        assert!(!texts[0].contains(word), "{word} is in {}", texts[0]);
        assert!(texts[1].contains(word), "{word} is not in {}", texts[1]);
    }
}
