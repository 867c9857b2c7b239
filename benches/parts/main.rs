//! The parts of a call's way: claim and record by size of the group, the judgement, templates, the request's hash.
//!
//! `cargo bench --bench parts`, or one of them: `cargo bench --bench parts -- claim`. Claim and record run on a PostgreSQL
//! of their own that waits for the disk at each commit; divide by the group's size for what a call costs.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a benchmark; the bans are for the sidecar, and criterion's macro documents nothing"
)]

mod statements;

use std::{hint::black_box, time::Duration};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use leafhopper::domain::{
    evidence::{Answer, Evidence},
    outcome::{Rules, classify},
    request::Request,
    template,
};
use serde_json::json;

fn judgement(criterion: &mut Criterion) {
    let answered = |status| {
        Evidence::Answered(Answer {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            retry_after: None,
            body: Bytes::from_static(b"{\"id\": 123, \"error\": null}"),
            truncated: false,
        })
    };
    let plain = Rules::default();
    let evidence = answered(201);
    criterion.bench_function("classify", |bencher| {
        bencher.iter(|| classify(black_box(&evidence), &plain, None));
    });
    let asked = Rules {
        verdict: Some("'failed' if response.body.error else none".to_owned()),
        ..Rules::default()
    };
    criterion.bench_function("classify with a verdict", |bencher| {
        bencher.iter(|| {
            let said = asked.verdict(black_box(&evidence)).unwrap();
            classify(&evidence, &asked, said)
        });
    });
}

fn templates(criterion: &mut Criterion) {
    let values = json!({
        "call": { "key": "site:42:repo", "path": "/repos", "body": { "owner": "acme", "name": "42" } },
        "response": { "status": 200, "body": { "id": 7, "description": "site:42:repo" } },
    });
    criterion.bench_function("render a path", |bencher| {
        let path = "/repos/{{ call.body.owner }}/{{ call.body.name }}";
        bencher.iter(|| template::render_path(path, black_box(&values)).unwrap());
    });
    criterion.bench_function("evaluate what a probe found", |bencher| {
        let found = "response.body if response.body.description == call.key";
        bencher.iter(|| template::evaluate(found, black_box(&values)).unwrap());
    });
}

fn hash(criterion: &mut Criterion) {
    let request = |body: usize| Request {
        method: "POST".to_owned(),
        path: "/charges".to_owned(),
        headers: Vec::new(),
        body: Some(Bytes::from(vec![b'x'; body])),
        content_type: None,
        idempotency: None,
        message_id: None,
        credential: None,
    };
    for size in [285, 65_536] {
        let request = request(size);
        criterion.bench_function(&format!("hash a request of {size} bytes"), |bencher| {
            bencher.iter(|| black_box(&request).hash());
        });
    }
}

fn quick() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! { name = pure; config = quick(); targets = judgement, templates, hash }
criterion_group! { name = database; config = quick(); targets = statements::claim, statements::record }
criterion_main!(pure, database);
