//! The harness's own instruments, which every other test believes: leaf, proxy, database, checks.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    checks,
    database::{self, Database},
    leaf::{Gate, Leaf, Remembers, Reply},
    proxy::{Direction, Proxy},
    wait::{holds_for, until},
};

/// What never comes is waited for so long; what comes, comes sooner on a stalled machine, too.
fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(5))
        .build()
        .unwrap()
}

async fn post(leaf: &Leaf, key: &str) -> reqwest::Result<(u16, String)> {
    post_to(&leaf.url(), key).await
}

async fn post_to(url: &str, key: &str) -> reqwest::Result<(u16, String)> {
    let body = json!({ "key": key, "padding": "x".repeat(5_000) }).to_string();
    let request = client()
        .post(format!("{url}/things?a=b"))
        .header("Idempotency-Key", "i")
        .body(body);
    let response = request.send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

#[tokio::test]
async fn a_leaf_without_a_script_executes_answers_and_can_be_asked() {
    let leaf = Leaf::start().await;
    let url = leaf.url();
    assert_eq!(
        post(&leaf, "a b").await.unwrap(),
        (201, json!({"id": 1, "key": "a b"}).to_string())
    );

    let request = leaf.requests("a b").remove(0);
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/things?a=b")
    );
    assert_eq!(request.header("idempotency-key"), Some("i"));
    assert_eq!(request.json()["padding"].as_str().unwrap().len(), 5_000);
    until("the answer counts as given", async || {
        let request = leaf.requests("a b").remove(0);
        if request.executed && request.answered {
            Ok(())
        } else {
            Err(request)
        }
    })
    .await;

    let probe = format!("{url}/effects/a%20b");
    let found = client().get(&probe).send().await.unwrap();
    assert_eq!(
        found.text().await.unwrap(),
        json!({"id": 1, "key": "a b"}).to_string()
    );
    assert_eq!(client().delete(&probe).send().await.unwrap().status(), 204);
    assert_eq!(client().get(&probe).send().await.unwrap().status(), 404);
    assert_eq!((leaf.effects("a b"), leaf.standing("a b")), (1, 0));
}

#[tokio::test]
async fn effect_and_answer_fail_independently() {
    let leaf = Leaf::start().await;
    leaf.on("/things").key("reset").resets();
    leaf.on("/things").key("closed").does_nothing().closes();
    leaf.on("/things")
        .key("truncated")
        .truncates(Reply::json(200, &json!({"long": "enough"})));
    leaf.on("/things").key("hangs").does_nothing().hangs();
    leaf.on("/things")
        .key("stalls")
        .stalls_mid_body(Reply::bytes(200, "half of it"));
    leaf.on("/things")
        .key("raw")
        .answers_raw("this is not HTTP\r\n\r\n");
    leaf.on("/things")
        .key("refused")
        .refuses(Reply::new(409).header("x-why", "exists"));

    for key in ["reset", "closed", "truncated", "hangs", "stalls", "raw"] {
        post(&leaf, key).await.expect_err(key);
        assert_eq!(leaf.requests(key).len(), 1, "{key}");
        assert!(!leaf.requests(key)[0].answered, "{key}");
    }
    assert_eq!(post(&leaf, "refused").await.unwrap(), (409, String::new()));
    let executed = ["raw", "reset", "stalls", "truncated"].map(|key| (key.to_owned(), 1));
    assert_eq!(leaf.all_effects(), executed.into());
}

#[tokio::test]
async fn a_leaf_resets_before_it_reads() {
    let leaf = Leaf::start().await;
    leaf.reset_connections(1);
    post(&leaf, "a").await.unwrap_err();
    assert!(leaf.all_requests().is_empty());
    leaf.always().times(1).resets_before_reading();
    post(&leaf, "a").await.unwrap_err();
    assert!(leaf.all_effects().is_empty());
    assert_eq!(leaf.all_requests()[0].body, b"");
    assert_eq!(post(&leaf, "a").await.unwrap().0, 201);
}

#[tokio::test]
async fn a_rule_counts_and_the_newest_one_wins() {
    let leaf = Leaf::start().await;
    leaf.always().answers(200);
    leaf.on("/things").nth(2).refuses(503);
    leaf.on("/thing").refuses(500);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(&leaf, "a").await.unwrap().0);
    }
    assert_eq!(statuses, [200, 503, 200]);
    leaf.behaves();
    assert_eq!(post(&leaf, "a").await.unwrap().0, 201);
}

#[tokio::test]
async fn a_leaf_that_honours_keys_replays_its_first_answer() {
    let leaf = Leaf::start().await;
    leaf.honours("Idempotency-Key", Remembers::Successes);
    leaf.always().nth(1).refuses(503);
    leaf.always().nth(1).resets();
    post(&leaf, "a").await.unwrap_err();
    // The 503's turn, but the key is known.
    let first = post(&leaf, "a").await.unwrap();
    assert_eq!(first, (201, json!({"id": 1, "key": "a"}).to_string()));
    assert_eq!(post(&leaf, "a").await.unwrap(), first);
    leaf.assert_each_effect_once(["a"]);
    assert!(leaf.requests("a")[2].replayed);
}

#[tokio::test]
async fn a_gate_holds_requests_before_or_after_their_effect() {
    let leaf = Leaf::start().await;
    let (before, after) = (Gate::closed(), Gate::closed());
    leaf.on("/things")
        .waits_before_the_effect(&before)
        .waits_before_the_answer(&after)
        .answers(200);
    let test = async {
        before.until_arrived(2).await;
        assert!(leaf.all_effects().is_empty());
        assert_eq!(
            (leaf.most_at_once(Some("a")), leaf.most_at_once(None)),
            (1, 2)
        );
        before.open();
        after.until_arrived(2).await;
        leaf.assert_each_effect_once(["a", "b"]);
        after.open();
    };
    let (a, b, ()) = tokio::join!(post(&leaf, "a"), post(&leaf, "b"), test);
    assert_eq!((a.unwrap().0, b.unwrap().0), (200, 200));
}

#[tokio::test]
async fn a_proxy_cuts_stalls_and_restores() {
    let leaf = Leaf::start().await;
    let proxy = Proxy::in_front_of(&leaf.url()).await;
    let url = proxy.url(&leaf.url());
    assert_eq!(post_to(&url, "a").await.unwrap().0, 201);

    proxy.cut();
    post_to(&url, "b").await.unwrap_err();
    proxy.stall();
    let stalled = post_to(&url, "c");
    let test = async {
        until("the proxy has it", async || match proxy.connections() {
            3.. => Ok(()),
            few => Err(few),
        })
        .await;
        holds_for(Duration::from_millis(100), "the stall", async || {
            if leaf.requests("c").is_empty() {
                Ok(())
            } else {
                Err(leaf.requests("c"))
            }
        })
        .await;
        proxy.restore();
    };
    let (stalled, ()) = tokio::join!(stalled, test);
    assert_eq!(stalled.unwrap().0, 201);

    // The request arrives, and of the answer only a few bytes come back.
    proxy.cut_after(Direction::Down, 10);
    post_to(&url, "d").await.unwrap_err();
    assert!(proxy.is_cut());
    assert_eq!(leaf.effects("d"), 1);
    proxy.restore();
    // Half of the request arrives.
    proxy.cut_after(Direction::Up, 1_000);
    post_to(&url, "e").await.unwrap_err();
    assert_eq!((leaf.effects("b"), leaf.effects("e")), (0, 0));
}

#[tokio::test]
async fn a_proxy_carries_postgres_and_ends_its_connections() {
    let database = Database::empty().await;
    let proxy = Proxy::in_front_of(&database.url).await;
    let client = database::connect(&proxy.url(&database.url)).await;
    client.batch_execute("SELECT 1").await.unwrap();
    proxy.cut();
    client.batch_execute("SELECT 1").await.unwrap_err();
    proxy.restore();
    database::connect(&proxy.url(&database.url))
        .await
        .batch_execute("SELECT 1")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_test_s_database_is_a_clone_and_goes_with_it() {
    let template = database::template("clones", async |url| {
        let client = database::connect(&url).await;
        client
            .batch_execute("CREATE TABLE t AS SELECT 1 AS one")
            .await
            .unwrap();
    })
    .await;
    let (a, b) = tokio::join!(
        Database::cloned_from(&template),
        Database::cloned_from(&template)
    );
    assert_ne!(a.name, b.name);
    a.connect()
        .await
        .batch_execute("DELETE FROM t")
        .await
        .unwrap();
    let left = b
        .connect()
        .await
        .query_one("SELECT count(*) FROM t", &[])
        .await
        .unwrap();
    assert_eq!(left.get::<_, i64>(0), 1);

    let name = a.name.clone();
    // Also with a connection that is still open.
    let _open = a.connect().await;
    drop(a);
    let sql = "SELECT count(*) FROM pg_database WHERE datname::text = $1";
    let row = b.connect().await.query_one(sql, &[&name]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), i64::from(database::keep()));
}

#[tokio::test]
async fn a_check_that_finds_rows_names_them() {
    let database = Database::empty().await;
    let client = database.connect().await;
    let check = "-- A law.\nSELECT 7 AS seven -- at the end\n;\n".to_owned();
    let found = checks::broken(&client, &[("law.sql".to_owned(), check)]).await;
    assert_eq!(found, [r#"law.sql: {"seven":7}"#]);
}
