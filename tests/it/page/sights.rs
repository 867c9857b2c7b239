//! What the page shows: the same numbers as everywhere else (M02), what is stuck, what is down.

use rustix::process::Signal;
use serde_json::{Value, json};
use uuid::Uuid;

use super::visitor::Visitor;
use crate::harness::{
    Bed,
    app::{call, keyed},
    wait::until,
};

/// The numbers of a table's row, by its heading.
fn row(page: &str, heading: &str) -> Vec<u64> {
    let row = page
        .split("<tr")
        .find(|row| row.contains(&format!(">{heading}</th>")));
    let row = row.unwrap_or_else(|| panic!("no row {heading} in:\n{page}"));
    row.split("<td")
        .skip(1)
        .map(|cell| {
            let text = cell.split_once('>').unwrap().1;
            let digits: String = text.chars().skip_while(|c| !c.is_ascii_digit()).collect();
            let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or_else(|_| panic!("{cell}"))
        })
        .collect()
}

#[tokio::test]
async fn page_command_line_and_metrics_count_the_same() {
    let bed = Bed::new().await;
    bed.leaf.on("/no").refuses(422);
    let sidecar = bed.sidecar("").await;
    let batch = Uuid::new_v4();
    let sql = format!(
        "INSERT INTO leafhopper.batch (id, allow_failures, sealed) VALUES ('{batch}', true, false)"
    );
    bed.app.execute(&sql).await;
    let later = call("leaf")
        .set("not_before", "2099-01-01T00:00:00Z")
        .batch(batch);
    let cancelled = bed.app.insert(later).await;
    for n in 0..9 {
        let path = if n < 6 { "/things" } else { "/no" };
        bed.app.insert(call("leaf").path(path).batch(batch)).await;
    }
    let mut visitor = Visitor::of(&sidecar);
    let cancel = [("do", "cancel"), ("reason", "no longer wanted")];
    let done = visitor.post(&format!("/calls/{cancelled}"), &cancel).await;
    assert_eq!(done.status, 303);
    let id = batch.to_string();
    let by_command = until("all ten are final", async || {
        let shown = sidecar.command(&["batch", &id, "--json"]).await;
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        let calls = shown["calls"].clone();
        let wanted = json!({ "confirmed": 6, "failed": 3, "cancelled": 1 });
        if calls == wanted {
            Ok(shown)
        } else {
            Err(shown)
        }
    })
    .await;
    assert_eq!(by_command["calls_by_kind"]["ready"], by_command["calls"]);
    let page = visitor.get(&format!("/batches/{batch}")).await;
    // The states in the order of the contract, and all of them.
    assert_eq!(row(&page.text, "calls"), [6, 3, 1, 10], "{}", page.text);
    page.assert_has(&["not sealed: more calls may come"]);
    // By the digits that lists show of it, straight to it.
    let found = visitor.get(&format!("/search?q={}", &id[..8])).await;
    assert_eq!(found.header("location"), format!("/batches/{id}"));
    let list = visitor.get("/batches").await;
    list.assert_has(&["6 confirmed, 3 failed, 1 cancelled"]);
    // The one that was cancelled by hand no instance saw end.
    for (state, number) in [("confirmed", 6.0), ("failed", 3.0)] {
        let labels = ["leaf=\"leaf\"", &format!("state=\"{state}\"")];
        let name = "leafhopper_calls_finished_total";
        sidecar.until_metric(name, &labels, number).await;
    }
    let labels = ["leaf=\"leaf\""];
    sidecar.until_metric("leafhopper_calls", &labels, 0.0).await;
    let overview = visitor.get("/").await;
    overview.assert_has(&[
        "<b>0</b> waiting",
        "<b>0</b> in flight",
        "Nothing is stuck.",
    ]);
}

#[tokio::test]
async fn what_is_stuck_is_on_top_with_why_and_what_would_move_it() {
    let bed = Bed::new().await;
    bed.leaf.always().key("lost").resets();
    let config = bed
        .config("in_doubt = \"park\"")
        .dispatch("stuck_after = \"1s\"");
    let sidecar = config.leaf("other", &bed.leaf.url(), "").start().await;
    let lost = bed.app.insert(keyed("leaf", "lost")).await;
    bed.app.until_state(lost, "parked").await;
    let mut visitor = Visitor::of(&sidecar);
    let pause = [
        ("do", "pause"),
        ("reason", "their maintenance"),
        ("who", "Ada"),
    ];
    let done = visitor.post("/leaves/other", &pause).await;
    visitor
        .follow(&done)
        .await
        .assert_has(&["Leaf other is paused"]);
    for n in 0..3 {
        bed.app
            .insert(call("nobody").key(&format!("unknown {n}")))
            .await;
    }
    let waits = bed.app.insert(keyed("other", "waits")).await;
    let page = until("all of it is stuck", async || {
        let page = Visitor::of(&sidecar).get("/").await;
        let stuck = page.text.contains("<b>5</b> stuck");
        if stuck { Ok(page) } else { Err(page.text) }
    })
    .await;
    let place = |text: &str| {
        let found = page.text.find(text);
        found.unwrap_or_else(|| panic!("{text} is not in:\n{}", page.text))
    };
    // The oldest first, one for each leaf and reason.
    assert!(place("parked: no_probe") < place("pending: leaf_unknown"));
    assert!(place("pending: leaf_unknown") < place("pending: leaf_paused"));
    page.assert_has(&[
        "Look at the leaf, then say what is true.",
        "It was done: confirm",
        "It was not done: send it",
        "No running instance knows a leaf nobody",
        "3 calls like this",
        "Resume <span class=\"about\">leaf other",
        "by Ada via the page from 127.0.0.1",
        "their maintenance",
        &format!("action=\"&#x2f;calls&#x2f;{lost}\""),
    ]);
    // Behind the link are exactly those.
    let list = visitor
        .get("/calls?stuck=true&leaf=nobody&state=pending&reason=leaf_unknown")
        .await;
    assert_eq!(
        list.text.matches("<tr data-key").count(),
        3,
        "{}",
        list.text
    );
    let resume = [("do", "resume"), ("reason", "they are back")];
    visitor.post("/leaves/other", &resume).await;
    bed.app.until_state(waits, "confirmed").await;
}

#[tokio::test]
async fn the_page_says_when_the_database_is_down() {
    let bed = Bed::new().await;
    let (way, config) = bed.behind_a_proxy("").await;
    let config = config.dispatch("lease = \"2s\"");
    let sidecar = config.start().await;
    let id = bed.app.insert(keyed("leaf", "a")).await;
    bed.app.until_state(id, "confirmed").await;
    let mut visitor = Visitor::of(&sidecar);
    assert_eq!(visitor.get("/").await.status, 200);
    sidecar.rewrite(&config.leaf("broken", "no url", ""));
    sidecar.signal(Signal::HUP);
    until("the refused reload is told", async || {
        let page = Visitor::of(&sidecar).get("/").await;
        let told = "The last reload of the configuration was refused";
        if page.text.contains(told) {
            Ok(())
        } else {
            Err(page.text)
        }
    })
    .await;
    way.cut();
    let page = until("it is noticed", async || {
        let page = Visitor::of(&sidecar).get("/").await;
        if page.status == 503 {
            Ok(page)
        } else {
            Err(page.text)
        }
    })
    .await;
    page.assert_has(&[
        "The database does not answer",
        "Nothing is sent until it does",
        ">leaf</span>",
    ]);
    let page = visitor.get(&format!("/calls/{id}")).await;
    assert_eq!(page.status, 503);
    page.assert_has(&["Service Unavailable", "nothing is lost"]);
    way.restore();
    until("it is there again", async || {
        let page = Visitor::of(&sidecar).get("/").await;
        if page.status == 200 && !page.text.contains("class=\"banner bad") {
            Ok(())
        } else {
            Err(page.text)
        }
    })
    .await;
}

#[tokio::test]
async fn a_database_that_changed_is_gone_on_with_from_the_page() {
    let bed = Bed::new().await;
    let mut sidecar = bed.sidecar("").await;
    sidecar.stop().await;
    bed.app
        .execute("UPDATE leafhopper.origin SET database_oid = database_oid + 1")
        .await;
    let id = bed.app.insert(keyed("leaf", "a")).await;
    sidecar.relaunch();
    let mut visitor = until("it listens", async || {
        let log = sidecar.log();
        let listens = log
            .iter()
            .filter(|line| line.to_string().contains("dispatching"))
            .count();
        if listens > 1 {
            Ok(Visitor::of(&sidecar))
        } else {
            Err(log)
        }
    })
    .await;
    let changed = "The database is not the one that it was";
    let page = until("it is told", async || {
        let page = visitor.get("/").await;
        if page.text.contains(changed) {
            Ok(page)
        } else {
            Err(page.text)
        }
    })
    .await;
    page.assert_has(&[
        "Go on, and look into each",
        "Go on, and send each",
        "value=\"resume_all_probe\"",
    ]);
    let go_on = [("do", "resume_all_resend"), ("reason", "a copy on purpose")];
    let done = visitor.post("/", &go_on).await;
    visitor.follow(&done).await.assert_has(&["Sending goes on"]);
    bed.app.until_state(id, "confirmed").await;
    until("the banner is gone", async || {
        let page = Visitor::of(&sidecar).get("/").await;
        if page.text.contains("class=\"banner") {
            Err(page.text)
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_s_page_tells_its_life_and_a_search_finds_it() {
    let bed = Bed::new().await;
    bed.leaf
        .always()
        .key("order:4711")
        .times(1)
        .does_nothing()
        .resets();
    let config = bed
        .config("timeout = \"10s\"")
        .probe("leaf", "settle = \"100ms\"");
    let sidecar = config.start().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let row =
        keyed("leaf", "order:4711").set("meta", json!({ "customer": 42, "traceparent": trace }));
    let id = bed.app.insert(row).await;
    bed.app.until_state(id, "confirmed").await;
    let again = bed.app.insert(keyed("leaf", "order:4711")).await;
    bed.app.until_state(again, "confirmed").await;
    let mut visitor = Visitor::of(&sidecar);
    let path = format!("/calls/{id}");
    let page = visitor.get(&path).await;
    page.assert_has(&[
        "inserted",
        "attempt 1 may have been executed: in doubt",
        "asked: it is not there",
        "confirmed: the leaf&#x27;s answer to attempt 2",
        "4bf92f3577b34da6a3ce929d0e0e4736",
        "&quot;order:4711&quot;",
        "Other calls of the same key",
    ]);
    let other = visitor.get(&format!("/calls/{again}")).await;
    other.assert_has(&[&format!(
        "confirmed from the record: the effect is that of call {id}"
    )]);
    // What has not changed is not sent again.
    let tag = page.header("etag").to_owned();
    let mut poll = Visitor::of(&sidecar)
        .with("x-leafhopper-poll", "1")
        .with("if-none-match", &tag);
    until("nothing has changed since", async || {
        let page = poll.get(&path).await;
        poll.headers[1].1 = page.header("etag").to_owned();
        if page.status == 304 {
            Ok(())
        } else {
            Err(page.status)
        }
    })
    .await;
    for (q, before, found) in [
        (id.to_string(), "", vec![id]),
        // As a part of the key, where its id is not meant.
        (id.to_string(), "&before=99", vec![again, id]),
        ("order:4711".to_owned(), "", vec![again, id]),
        ("4711".to_owned(), "", vec![again, id]),
        ("customer=42".to_owned(), "", vec![id]),
        (r#"{"customer": 42}"#.to_owned(), "", vec![id]),
        ("customer=43".to_owned(), "", vec![]),
        ("order:4712".to_owned(), "", vec![]),
    ] {
        let path = format!("/search?q={}{before}", super::visitor::percent(&q));
        let mut page = visitor.get(&path).await;
        if page.status == 303 {
            page = visitor.follow(&page).await;
            page.assert_has(&[&format!("Call {} ", found[0])]);
            continue;
        }
        let rows = page.text.split("<tr data-key=\"").skip(1);
        let rows: Vec<i64> = rows
            .map(|row| row.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(rows, found, "{q}: {}", page.text);
    }
}
