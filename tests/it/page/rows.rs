//! What rows hold is text on the page, never markup; and it can be hidden.

use serde_json::json;
use uuid::Uuid;

use super::visitor::{Visitor, percent};
use crate::harness::{
    Bed,
    app::{App, Call, call},
    leaf::Reply,
};

/// Ends an element, an attribute of either kind, and a script; runs, if it is ever markup; and changes how a line is read.
const EVIL: &str = "</code></title><script>window.evil=1</script>\"'><img src=x onerror=\"evil()\">\u{202e}{{7*7}}";

/// As it has to be written.
const TAMED: &str = "&lt;script&gt;window.evil=1&lt;&#x2f;script&gt;&quot;&#x27;&gt;&lt;img src=x onerror=&quot;evil()&quot;&gt;\\u{202e}{{7*7}}";

/// A call of which all that an app may write is hostile.
pub(super) fn hostile(leaf: &str) -> Call {
    call(leaf)
        .key(EVIL)
        .path("/things?q=(alert(1))&lt;=&copy")
        .body(json!({ "key": "hostile", EVIL: [EVIL] }))
        .set("meta", json!({ EVIL: EVIL }))
        .set("headers", json!({ "x-evil": "<script>alert(1)</script>" }))
}

async fn hostile_batch(app: &App) -> Uuid {
    let batch = Uuid::new_v4();
    let name = crate::harness::app::literal(EVIL);
    let sql = format!(
        "INSERT INTO leafhopper.batch (id, name, sealed) VALUES ('{batch}', {name}, false)"
    );
    app.execute(&sql).await;
    batch
}

#[tokio::test]
async fn what_rows_hold_is_text_and_not_markup() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .key("hostile")
        .refuses(Reply::bytes(422, EVIL).header("location", "<script>"));
    let sidecar = bed.sidecar("").await;
    let batch = hostile_batch(&bed.app).await;
    let failed = bed.app.insert(hostile("leaf").batch(batch)).await;
    bed.app.until_state(failed, "failed").await;
    // The name of a leaf is a row's, too, and so is the reason of a person.
    let name: String = EVIL.chars().take(100).collect();
    let waits = bed.app.insert(hostile(&name)).await;
    let cancelled = bed.app.insert(hostile(&name)).await;
    let confirmed = bed.app.insert(call("leaf").key(&format!("{EVIL}2"))).await;
    bed.app.until_state(confirmed, "confirmed").await;
    let mut visitor = Visitor::of(&sidecar);
    let cancel = [
        ("do", "cancel"),
        ("reason", EVIL),
        ("who", EVIL),
        ("back", "/"),
    ];
    let done = visitor.post(&format!("/calls/{cancelled}"), &cancel).await;
    assert_eq!(done.status, 303, "{}", done.text);
    for path in [
        "/".to_owned(),
        format!("/calls/{failed}"),
        format!("/calls/{waits}"),
        format!("/calls/{cancelled}"),
        format!("/calls/{confirmed}"),
        format!("/batches/{batch}"),
        "/calls".to_owned(),
        format!("/calls?leaf={}", percent(EVIL)),
        "/batches".to_owned(),
        format!("/search?q={}", percent("window.evil")),
        format!("/calls/{}", percent(EVIL)),
        format!("/calls?state={}", percent(EVIL)),
        format!("/login?to={}", percent(EVIL)),
    ] {
        let page = visitor.get(&path).await;
        let shows = page.text.contains("window.evil=1");
        assert!(shows || path.starts_with("/login"), "{path}: {}", page.text);
        for markup in [
            "<script>",
            "<img src=x",
            "</code></title>",
            "\u{202e}",
            "{{49}}",
            ">49<",
        ] {
            assert!(
                !page.text.contains(markup),
                "{path} has {markup}:\n{}",
                page.text
            );
        }
        // What is quoted stays inside its quotes.
        assert!(!page.text.contains("onerror=\""), "{path}:\n{}", page.text);
        let policy = page.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(page.header("x-content-type-options"), "nosniff");
    }
    visitor.get(&format!("/calls/{failed}")).await.assert_has(&[
        TAMED,
        "What the leaf said",
        "attempt 1 was refused",
    ]);
}

#[tokio::test]
async fn bodies_are_hidden_where_the_configuration_says_so() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .key("no")
        .refuses(Reply::bytes(422, "a SECRET excerpt"));
    bed.leaf
        .always()
        .key("yes")
        .answers(Reply::json(201, &json!({ "answer": "a SECRET answer" })));
    let config = bed.config("").listen("show_bodies = false");
    let sidecar = config.start().await;
    let row = |key: &str| {
        let body = json!({ "key": key, "say": "a SECRET body" });
        call("leaf")
            .key(key)
            .body(body)
            .set("headers", json!({ "x-token": "a SECRET header" }))
    };
    let yes = bed.app.insert(row("yes")).await;
    let no = bed.app.insert(row("no")).await;
    bed.app.until_state(yes, "confirmed").await;
    bed.app.until_state(no, "failed").await;
    let mut visitor = Visitor::of(&sidecar);
    for id in [yes, no] {
        let page = visitor.get(&format!("/calls/{id}")).await;
        page.assert_has(&["listen.show_bodies = false"]);
        assert!(!page.text.contains("SECRET"), "{}", page.text);
    }
    let open = bed.config("").start().await;
    for (id, parts) in [
        (yes, ["a SECRET body", "a SECRET header", "a SECRET answer"]),
        (no, ["a SECRET body", "a SECRET header", "a SECRET excerpt"]),
    ] {
        let page = Visitor::of(&open).get(&format!("/calls/{id}")).await;
        page.assert_has(&parts);
    }
}
