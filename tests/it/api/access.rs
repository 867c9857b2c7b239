//! Whom the API serves. Every path is taken from the document, so none can be forgotten.

use std::{net::SocketAddr, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::{Answer, Client, answers_of, send};
use crate::harness::{Bed, sidecar::Sidecar};

const TOKEN: &str = "a token of some length";

/// The headers that every answer has.
const HEADERS: [&str; 7] = [
    "content-security-policy",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "cache-control",
];

/// Method and path of everything that the document names, with an id for each name in a path.
async fn operations(client: &Client<'_>) -> Vec<(Method, String)> {
    let document = client.get("/api/v1/openapi.json").await.expect(200);
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let uuid = if path.contains("batches") {
            "00000000-0000-0000-0000-000000000001"
        } else {
            "1"
        };
        let path = path.replace("{id}", uuid).replace("{name}", "leaf");
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            all.push((method, path.clone()));
        }
    }
    assert!(all.len() > 20, "{all:?}");
    all
}

/// Asks for it, with a body where it acts.
async fn ask(client: &Client<'_>, method: &Method, path: &str) -> Answer {
    ask_with(client, method, path, &[]).await
}

async fn ask_with(
    client: &Client<'_>,
    method: &Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let mut request = client.request(method.clone(), path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if *method == Method::POST {
        let body = json!({ "reason": "a test" }).to_string();
        request = request
            .header("content-type", "application/json")
            .body(body);
    }
    send(request).await
}

/// It is a problem as RFC 9457 has it.
fn assert_problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:#?}");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(answer.body["status"], json!(status));
    assert!(answer.body["detail"].as_str().unwrap().len() > 10);
}

/// Nobody has done anything.
async fn assert_untouched(bed: &Bed) {
    let done = "SELECT actor, action FROM leafhopper.operator_action";
    assert_eq!(bed.app.rows(done).await, [] as [Value; 0]);
    let jobs = bed.app.rows("SELECT id FROM leafhopper.job").await;
    assert_eq!(jobs, [] as [Value; 0]);
}

#[tokio::test]
async fn nothing_is_served_without_the_token() {
    let bed = Bed::new().await;
    let config = bed.config("").listen("admin_token = { env = \"ADMIN\" }");
    let sidecar = config.sidecar().environment("ADMIN", TOKEN).start().await;
    let operator = Client::new(&sidecar).with_token(TOKEN);
    let stranger = Client::new(&sidecar);
    let all = operations(&operator).await;
    for (method, path) in &all {
        let answer = ask(&stranger, method, path).await;
        assert_problem(&answer, 401);
        assert_eq!(
            answer.header("www-authenticate"),
            "Bearer realm=\"leafhopper\""
        );
    }
    for (method, path) in &all {
        // What the token opens may still be refused for what it says.
        let answer = ask(&operator, method, path).await;
        assert!(![401, 403, 405].contains(&answer.status), "{answer:#?}");
        assert!(answer.status < 500, "{answer:#?}");
    }
    assert_eq!(sidecar.get("/readyz").await.0, 200);

    // Who guesses is not looked at any more, not even with the right one.
    for n in 0..10 {
        let guesser = Client::new(&sidecar).with_token(&format!("guess {n}"));
        let answer = guesser.get("/api/v1/calls").await;
        assert_problem(&answer, 401);
        let detail = answer.body["detail"].to_string();
        assert!(detail.contains("that is not the token"), "{detail}");
    }
    let lines = sidecar.lines();
    let told: Vec<_> = lines
        .iter()
        .filter(|l| l.contains("a wrong token"))
        .collect();
    assert!(told.len() == 1 && !told[0].contains("guess"), "{told:?}");
    let answer = operator.get("/api/v1/calls").await;
    assert_problem(&answer, 429);
    let detail = answer.body["detail"].to_string();
    assert!(detail.contains("try again in "), "{detail}");
    let wait: u64 = answer.header("retry-after").parse().unwrap();
    assert!((1..=61).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_listener_that_others_reach_serves_no_rows_and_does_nothing_without_a_token() {
    let bed = Bed::new().await;
    let starter = bed.config("").sidecar();
    let text = bed.config("").text();
    starter.rewrite_text(&text.replace("address = \"127.0.0.1:0\"", "address = \"0.0.0.0:0\""));
    let sidecar = starter.start().await;
    let said = sidecar.log().into_iter().any(|line| {
        let text = line["message"].as_str().unwrap_or_default();
        line["level"] == "WARN" && text.contains("can be reached from elsewhere")
    });
    assert!(said, "it says so at start");
    // The document of one like it: here it is not to be had.
    let near = bed.sidecar("").await;
    for (method, path) in operations(&Client::new(&near)).await {
        let answer = ask(&Client::new(&sidecar), &method, &path).await;
        assert_problem(&answer, 403);
        assert!(
            answer.body["detail"]
                .as_str()
                .unwrap()
                .contains("listen.admin_token"),
            "{answer:#?}"
        );
    }
    for open in ["/metrics", "/livez", "/readyz"] {
        assert_eq!(sidecar.get(open).await.0, 200);
    }
    assert_untouched(&bed).await;
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing_and_reads_nothing() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    let all = operations(&client).await;
    for (method, path) in &all {
        for (name, value) in [
            ("origin", "http://evil.example.com"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let answer = ask_with(&client, method, path, &[(name, value)]).await;
            if *method == Method::POST {
                assert_problem(&answer, 403);
            }
            // A browser hands no answer to a page that this header does not let in.
            assert_eq!(answer.header("access-control-allow-origin"), "");
        }
        // A name that somebody's DNS points at this machine.
        let rebound = [("host", "rebound.example.com")];
        assert_problem(&ask_with(&client, method, path, &rebound).await, 421);
        let proxied = [("x-forwarded-for", "192.0.2.7")];
        assert_problem(&ask_with(&client, method, path, &proxied).await, 403);
    }
    // The types that a page may send anywhere without asking first.
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let request = client.request(Method::POST, "/api/v1/leaves/leaf/pause");
        let request = request.header("content-type", kind);
        let answer = send(request.body("{\"reason\": \"a test\"}")).await;
        assert_problem(&answer, 415);
    }
    // And asking first is answered with no leave.
    let asks = [
        ("origin", "http://evil.example.com"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type"),
    ];
    let path = "/api/v1/leaves/leaf/pause";
    let answer = ask_with(&client, &Method::OPTIONS, path, &asks).await;
    assert_ne!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), "");
    assert_untouched(&bed).await;
}

#[tokio::test]
async fn no_action_is_a_get_and_every_answer_has_its_headers() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    let all = operations(&client).await;
    let reads: Vec<&String> = all
        .iter()
        .filter_map(|(method, path)| (*method == Method::GET).then_some(path))
        .collect();
    for (method, path) in &all {
        let other = if *method == Method::POST {
            if reads.contains(&path) {
                continue;
            }
            Method::GET
        } else {
            Method::DELETE
        };
        let answer = ask(&client, &other, path).await;
        // An action on many has the path of a call that has no number.
        if answer.status != 400 {
            assert_problem(&answer, 405);
            let allow = answer.header("allow");
            assert!(
                allow.split(',').any(|one| one == method.as_str()),
                "{allow}"
            );
        }
    }
    assert_untouched(&bed).await;
    for path in [
        "/api/v1/calls",
        "/api/v1/calls/7",
        "/metrics",
        "/nothing",
        "/api/v1/calls?x=1",
    ] {
        let answer = client.get(path).await;
        for name in HEADERS {
            assert_ne!(answer.header(name), "", "{path}: {name}");
        }
        assert_eq!(answer.header("set-cookie"), "");
        assert_eq!(answer.header("server"), "");
    }
    assert_problem(&client.get("/api/v1/nothing").await, 404);
}

/// What an answer is waited for. The limits themselves are five seconds.
const PATIENCE: Duration = Duration::from_secs(15);

#[tokio::test]
async fn a_slow_or_greedy_client_is_cut_off() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let head = "POST /api/v1/leaves/leaf/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let (slow_head, slow_body, too_long, endless, idle, crowd) = tokio::join!(
        answers_of(
            &sidecar,
            "GET /api/v1/calls HTTP/1.1\r\nHost: loc",
            PATIENCE
        ),
        answers_of(
            &sidecar,
            format!("{head}Content-Length: 20\r\n\r\n{{\"rea"),
            PATIENCE
        ),
        answers_of(
            &sidecar,
            format!(
                "{head}Content-Length: 1048577\r\n\r\n{}",
                "x".repeat(1_048_577)
            ),
            PATIENCE
        ),
        answers_of(
            &sidecar,
            format!("{head}X: {}\r\n\r\n", "y".repeat(200_000)),
            PATIENCE
        ),
        answers_of(
            &sidecar,
            "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
            PATIENCE
        ),
        a_crowd(&sidecar),
    );
    assert!(
        slow_head.is_empty() || slow_head.starts_with("HTTP/1.1 408"),
        "{slow_head}"
    );
    assert!(slow_body.starts_with("HTTP/1.1 408"), "{slow_body}");
    assert!(
        slow_body.contains("application/problem+json"),
        "{slow_body}"
    );
    assert!(too_long.starts_with("HTTP/1.1 413"), "{too_long}");
    assert!(endless.starts_with("HTTP/1.1 431"), "{endless}");
    // Served, and closed once it was idle.
    assert!(idle.starts_with("HTTP/1.1 200"), "{idle}");
    assert_eq!(crowd, 200);
    assert_untouched(&bed).await;
}

/// More silent connections than are served at once, all from one place: they hold nobody up who comes from another one.
async fn a_crowd(sidecar: &Sidecar) -> u16 {
    let address: SocketAddr = sidecar
        .url("")
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let mut crowd = Vec::new();
    for _ in 0..300 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 9], 0).into()).unwrap();
        crowd.push(socket.connect(address).await.unwrap());
    }
    let served = tokio::select! {
        biased;
        (status, _) = sidecar.get("/livez") => Some(status),
        // They say nothing, so the server closes them after a while.
        _ = crowd[0].readable() => None,
    };
    served.expect("an answer while they are all there")
}

/// PostgreSQL does not notice that nobody waits for a statement any more.
#[tokio::test]
async fn clients_that_ask_and_go_have_no_more_statements_under_way_than_one_who_waits() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let client = Client::new(&sidecar);
    client.get("/api/v1/calls").await.expect(200);
    bed.app
        .execute("BEGIN; LOCK TABLE leafhopper.outbox IN ACCESS EXCLUSIVE MODE")
        .await;
    for _ in 0..10 {
        let request = client.request(Method::GET, "/api/v1/calls");
        let answer = request.timeout(Duration::from_millis(200)).send().await;
        assert!(answer.unwrap_err().is_timeout());
    }
    let lists = "SELECT count(*) FROM pg_stat_activity \
                  WHERE datname = current_database() AND state = 'active' AND query LIKE '-- Ids of all calls%'";
    let lists: i64 = bed.app.client().query_one(lists, &[]).await.unwrap().get(0);
    assert!((1..=2).contains(&lists), "{lists}");
    bed.app.execute("ROLLBACK").await;
    client.get("/api/v1/calls").await.expect(200);
}
