//! Reach: requests go only to the configured leaves' origins, under their base path, whatever a row says.

use serde_json::{Value, json};

use crate::harness::{
    Bed,
    app::{Call, call},
    leaf::{Leaf, Reply},
    wait::until,
};

fn thing(key: &str) -> Call {
    call("leaf").key(key).body(json!({ "key": key }))
}

/// Takes away the checks of the outbox, as a careless restore would.
async fn drop_checks(bed: &Bed) {
    bed.app
        .execute(
            "DO $$ DECLARE found record; BEGIN
                 FOR found IN SELECT conname FROM pg_constraint
                               WHERE conrelid = 'leafhopper.outbox'::regclass AND contype = 'c'
                 LOOP
                     EXECUTE format('ALTER TABLE leafhopper.outbox DROP CONSTRAINT %I', found.conname);
                 END LOOP;
             END $$",
        )
        .await;
}

async fn is_unsendable(bed: &Bed, id: i64, what: &str) -> Value {
    let call = bed.app.until_state(id, "failed").await;
    assert_eq!(call["reason"], "unsendable", "{what}: {call:#}");
    assert_eq!(call["attempts"], json!(0), "{what}");
    let attempts = bed.app.attempts(id).await;
    assert_eq!(attempts.len(), 1, "{what}: {attempts:#?}");
    attempts[0].clone()
}

#[tokio::test]
async fn a_path_that_could_lead_elsewhere_is_not_sent_and_its_neighbours_are() {
    let bed = Bed::new().await;
    drop_checks(&bed).await;
    let elsewhere = Leaf::start().await;
    let authority = elsewhere.url();
    let authority = authority.trim_start_matches("http://");
    let base = format!("{}/api/v1", bed.leaf.url());
    let config = crate::harness::sidecar::Config::new(&bed.database.url).leaf("leaf", &base, "");
    let mut bad = Vec::new();
    let mut good = Vec::new();
    for path in [
        "/../admin".to_owned(),
        "/..".to_owned(),
        "/./x".to_owned(),
        "/a/../../../admin".to_owned(),
        "/a%2f..%2f..%2fb".to_owned(),
        "/%2e%2e/admin".to_owned(),
        "/%252e%252e/admin".to_owned(),
        "/..;/admin".to_owned(),
        "/\\..\\admin".to_owned(),
        format!("//{authority}/x"),
        format!("///{authority}/x"),
        format!("//me@{authority}/x"),
        format!("/%2e%2E/%2F{authority}"),
        format!("/\\{authority}/x"),
        format!("\\\\{authority}\\x"),
        format!("@{authority}/x"),
        format!(":80@{authority}/x"),
        format!("http://{authority}/x"),
        format!(".{authority}/x"),
        String::new(),
        "?x=y".to_owned(),
        "#x".to_owned(),
        "/x#y".to_owned(),
        "/x y".to_owned(),
        "/x\r\nX-Injected: y".to_owned(),
        "/x\ty".to_owned(),
        "/ä".to_owned(),
    ] {
        let row = thing(&format!("bad {path}")).path(&path);
        bad.push((bed.app.insert(row).await, path));
        good.push(bed.app.insert(thing(&format!("good-{}", good.len()))).await);
    }
    let _sidecar = config.start().await;
    for (id, path) in bad {
        is_unsendable(&bed, id, &path).await;
    }
    for id in good {
        bed.app.until_state(id, "confirmed").await;
    }
    let requests = bed.leaf.all_requests();
    assert_eq!(requests.len(), 27);
    let base = "/api/v1/things";
    assert!(
        requests.iter().all(|request| request.path == base),
        "{requests:#?}"
    );
    assert!(elsewhere.all_requests().is_empty());
}

#[tokio::test]
async fn a_row_that_can_t_be_a_request_fails_alone() {
    let bed = Bed::new().await;
    drop_checks(&bed).await;
    let config = bed
        .config("")
        .leaf(
            "own",
            &bed.leaf.url(),
            "auth = { header = { name = \"X-Token\", value = { env = \"TOKEN\" } } }\n\
             idempotency = { header = \"X-Idempotency\", window = \"1h\" }",
        )
        .leaf(
            "bearer",
            &bed.leaf.url(),
            "auth = { bearer = { env = \"TOKEN\" } }",
        );
    let header = |leaf: &str, name: &str, value: &str| {
        call(leaf)
            .body(json!({ "key": "header" }))
            .set("headers", json!({ name: value }))
    };
    let rows = [
        header("leaf", "Host", "elsewhere"),
        header("leaf", "content-length", "3"),
        header("leaf", "Transfer-Encoding", "chunked"),
        header("leaf", "Connection", "upgrade"),
        header("leaf", "Proxy-Authorization", "Basic x"),
        header("leaf", "Content-Type", "text/plain"),
        header("leaf", "X-Injected", "a\r\nHost: elsewhere"),
        header("leaf", "X-Ümlaut", "a"),
        header("leaf", "X-Value", "ä"),
        header("leaf", "", "a"),
        header("leaf", "X Space", "a"),
        header("own", "x-token", "mine"),
        header("own", "X-IDEMPOTENCY", "mine"),
        header("bearer", "Authorization", "Bearer mine"),
        header("bearer", "AUTHORIZATION", "Bearer mine"),
        thing("array").set("headers", json!(["a", "b"])),
        thing("number").set("headers", json!({ "X-A": 1 })),
        thing("twice").set("headers", json!({ "X-A": "1", "x-a": "2" })),
        thing("method").method("FROB"),
        thing("CONNECT").method("CONNECT"),
        thing("get").method("get"),
    ];
    let mut bad = Vec::new();
    for row in rows {
        let what = format!("{row:?}");
        bad.push((bed.app.insert(row).await, what));
    }
    let good = [
        header("leaf", "Authorization", "Bearer of the row"),
        header("own", "Authorization", "Bearer of the row"),
        thing("empty body").set("body", Value::Null),
    ];
    let mut ids = Vec::new();
    for row in good {
        ids.push(bed.app.insert(row).await);
    }
    let _sidecar = config
        .sidecar()
        .environment("TOKEN", "the-leaf-s-token")
        .start()
        .await;
    for (id, what) in bad {
        let attempt = is_unsendable(&bed, id, &what).await;
        assert_eq!(attempt["class"], "failed");
        let error = attempt["error"].as_str().unwrap();
        assert!(!error.contains("the-leaf-s-token"), "{error}");
    }
    for id in ids {
        bed.app.until_state(id, "confirmed").await;
    }
    assert_eq!(bed.leaf.all_requests().len(), 3);
}

#[tokio::test]
async fn a_base_path_is_kept_and_a_path_goes_as_it_is() {
    let bed = Bed::new().await;
    let slash = format!("{}/base/", bed.leaf.url());
    let none = format!("{}/a%2Fb", bed.leaf.url());
    let config = bed
        .config("")
        .leaf("slash", &slash, "")
        .leaf("none", &none, "");
    let _sidecar = config.start().await;
    let mut expected = Vec::new();
    for (leaf, base) in [("slash", "/base"), ("none", "/a%2Fb"), ("leaf", "")] {
        for path in [
            "/",
            "/x?y=..&z=/../",
            "/group%2Fproject//x/",
            "/~a!b$c&d'e(f)g*h+i,j;k=l:m@n",
        ] {
            let id = bed.app.insert(call(leaf).path(path)).await;
            bed.app.until_state(id, "confirmed").await;
            expected.push(format!("{base}{path}"));
        }
    }
    let sent: Vec<String> = bed
        .leaf
        .all_requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    assert_eq!(sent, expected);
}

/// What undoes an effect is a template of the row's, over what the leaf has answered: neither leads elsewhere.
#[tokio::test]
async fn a_compensation_that_could_lead_elsewhere_is_not_sent() {
    let bed = Bed::new().await;
    let elsewhere = Leaf::start().await;
    let authority = elsewhere.url();
    let authority = authority.trim_start_matches("http://");
    let answer = json!({ "host": authority, "up": "..", "url": elsewhere.url(), "at": format!("@{authority}") });
    bed.leaf.on("/things").answers(Reply::json(201, &answer));
    let base = format!("{}/api", bed.leaf.url());
    let config = bed.config("").leaf("based", &base, "");
    bed.leaf
        .on("/api/things")
        .answers(Reply::json(201, &answer));
    let _sidecar = config.start().await;
    let is_parked = [
        format!("//{authority}/x"),
        format!("/\\{authority}/x"),
        "//{{ result.body.host }}/x".to_owned(),
        "/{{ result.body.up }}/admin".to_owned(),
        "/%2e%2e/admin".to_owned(),
        "/x\r\nHost: {{ result.body.host }}".to_owned(),
    ];
    let stays_here = [
        (
            "/{{ result.body.url }}",
            format!("/api/http%3A%2F%2F{}", authority.replace(':', "%3A")),
        ),
        (
            "/x{{ result.body.at }}",
            format!("/api/x%40{}", authority.replace(':', "%3A")),
        ),
    ];
    let paths: Vec<&str> = is_parked
        .iter()
        .map(String::as_str)
        .chain(stays_here.iter().map(|(path, _)| *path))
        .collect();
    let mut undone = Vec::new();
    for path in paths {
        let batch = uuid::Uuid::new_v4();
        let compensate = json!({ "method": "DELETE", "path": path });
        let row = call("based")
            .key(path)
            .batch(batch)
            .set("compensate", compensate);
        let unsealed =
            format!("INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)");
        bed.app.execute(&unsealed).await;
        let id = bed.app.insert(row).await;
        bed.app.until_state(id, "confirmed").await;
        bed.app
            .execute(&format!("SELECT leafhopper.cancel_batch('{batch}', 'r')"))
            .await;
        undone.push(id);
    }
    for (n, id) in undone.iter().enumerate() {
        let ended = until(&format!("what undoes call {id} has ended or is parked"), async || {
            let row = format!("SELECT state, reason FROM leafhopper.call WHERE undoes = {id} AND (finished_at IS NOT NULL OR state = 'parked')");
            bed.app.rows(&row).await.pop().ok_or(())
        })
        .await;
        let expected = if n < is_parked.len() {
            json!({ "state": "parked", "reason": "template" })
        } else {
            json!({ "state": "confirmed", "reason": null })
        };
        assert_eq!(ended, expected, "call {id}");
    }
    let deletes = bed
        .leaf
        .all_requests()
        .into_iter()
        .filter(|it| it.method == "DELETE");
    let mut sent: Vec<String> = deletes.map(|it| it.path).collect();
    sent.sort();
    let mut expected: Vec<String> = stays_here.into_iter().map(|(_, path)| path).collect();
    expected.sort();
    assert_eq!(sent, expected);
    assert!(elsewhere.all_requests().is_empty());
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let bed = Bed::new().await;
    let elsewhere = Leaf::start().await;
    let _sidecar = bed.sidecar("").await;
    for status in [300, 301, 302, 303, 307, 308] {
        let location = format!("{}/internal", elsewhere.url());
        bed.leaf
            .always()
            .times(1)
            .refuses(Reply::new(status).header("location", &location));
        let id = bed.app.insert(thing(&status.to_string())).await;
        let call = bed.app.until_state(id, "failed").await;
        assert_eq!(
            (&call["reason"], &call["last_status"]),
            (&json!("rejected"), &json!(status))
        );
    }
    bed.leaf
        .always()
        .times(1)
        .refuses(Reply::new(302).header("location", "/elsewhere"));
    let id = bed.app.insert(thing("here")).await;
    bed.app.until_state(id, "failed").await;
    assert!(elsewhere.all_requests().is_empty());
    assert_eq!(bed.leaf.all_requests().len(), 7);
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_used() {
    let bed = Bed::new().await;
    let proxy = Leaf::start().await;
    let mut starter = bed.config("").sidecar();
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        starter = starter
            .environment(name, &proxy.url())
            .environment(&name.to_lowercase(), &proxy.url());
    }
    let _sidecar = starter.start().await;
    let id = bed.app.insert(thing("a")).await;
    bed.app.until_state(id, "confirmed").await;
    assert_eq!(bed.leaf.requests("a").len(), 1);
    assert!(proxy.all_requests().is_empty());
}
