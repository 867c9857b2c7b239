//! What is done from the page, and what is refused (N03).

use serde_json::{Value, json};

use super::visitor::Visitor;
use crate::{
    harness::{
        Bed,
        app::{App, keyed},
        wait::until,
    },
    outbox::table,
};

/// What may not be done to a call that is confirmed (`yes`), failed (`no`) or parked, and to what is not there: what a
/// form sends, and what is said.
const REFUSED: &str = r#"
/calls/YES :: do=retry reason=because :: only a failed call can be retried
/calls/YES :: do=cancel reason=because :: confirmed
/calls/YES :: do=confirm reason=because :: does not wait for this word
/calls/YES :: do=not_executed reason=because :: confirmed
/calls/YES :: do=waive reason=because :: Not done.
/calls/YES :: do=release reason=because :: no calls are held because of call
/calls/NO :: do=retry reason= :: no reason was given
/calls/NO :: do=retry reason=because attempts=7 :: has moved: 1 attempts now, 7 were expected
/calls/NO :: do=retry reason=because attempts=x :: is no number
/calls/PARKED :: do=cancel reason=because :: Not done.
/calls/PARKED :: do=confirm reason=because status=9 :: 9 is no HTTP status
/calls/PARKED :: do=confirm reason=because body={ :: the body is no JSON
/calls/PARKED :: do=destroy reason=because :: is nothing that can be done to a call
/calls/999 :: do=retry reason=because :: There is no call 999.
/calls/x :: do=retry reason=because :: There is no call x.
/batches/7c9e6679-7425-40de-944b-e07fc1f90ae7 :: do=cancel reason=because :: There is no batch
"#;

/// What is refused on the overview.
const REFUSED_THERE: &str = r#"
/leaves/unheard-of :: do=resume reason=because :: no instance ever knew a leaf
/leaves/leaf :: do=destroy reason=because :: nothing that can be done to a leaf
/leaves/leaf :: do=pause reason= :: no reason was given
/ :: do=resume_all_probe reason=because :: the database has not changed
/ :: do=destroy reason=because :: is nothing that can be done
"#;

fn fields(text: &str) -> Vec<(&str, &str)> {
    let pairs = text.split(' ');
    pairs.map(|pair| pair.split_once('=').unwrap()).collect()
}

/// All that was ever written down.
async fn history(app: &App) -> Vec<Value> {
    let mut all = Vec::new();
    for table in [
        "result",
        "attempt",
        "finished",
        "dispatch",
        "leaf_control",
        "operator_action",
    ] {
        let rows = format!("SELECT * FROM leafhopper.{table} ORDER BY 1, 2");
        all.extend(app.rows(&rows).await);
    }
    all
}

#[tokio::test]
async fn what_may_not_be_done_is_refused_in_words_and_changes_nothing() {
    let bed = Bed::new().await;
    bed.leaf.always().key("parked").resets();
    bed.leaf.always().key("no").refuses(422);
    let sidecar = bed.sidecar("in_doubt = \"park\"").await;
    let mut ids = Vec::new();
    for (key, state) in [("yes", "confirmed"), ("parked", "parked"), ("no", "failed")] {
        let id = bed.app.insert(keyed("leaf", key)).await;
        bed.app.until_state(id, state).await;
        ids.push((key.to_uppercase(), id.to_string()));
    }
    let before = history(&bed.app).await;
    let mut visitor = Visitor::of(&sidecar);
    for [path, sent, says] in table(REFUSED) {
        let mut path = path.to_owned();
        for (name, id) in &ids {
            path = path.replace(name, id);
        }
        let page = visitor.post(&path, &fields(sent)).await;
        assert!([404, 409].contains(&page.status), "{path} {sent}: {page:?}");
        page.assert_has(&[says]);
    }
    for [path, sent, says] in table(REFUSED_THERE) {
        let page = visitor.post(path, &fields(sent)).await;
        let page = visitor.follow(&page).await;
        page.assert_has(&["Not done.", says]);
    }
    assert_eq!(history(&bed.app).await, before);
    // What was typed is there again, and the message only once.
    let (_, no) = ids.last().unwrap();
    let no = format!("/calls/{no}");
    let again = [("do", "retry"), ("reason", "in vain"), ("attempts", "7")];
    let page = visitor.post(&no, &again).await;
    page.assert_has(&["value=\"in vain\""]);
    let parked = format!("/calls/{}", ids[1].1);
    let mut again = vec![("do", "confirm"), ("reason", "seen"), ("attempts", "0")];
    again.extend([("status", "201"), ("body", "{id: 7}")]);
    let page = visitor.post(&parked, &again).await;
    page.assert_has(&["value=\"201\"", ">{id: 7}</textarea>"]);
    let page = visitor.get(&no).await;
    assert!(!page.text.contains("Not done."), "{}", page.text);
}

/// What is done to the call of a key, with one field more; the state that it comes to, and what is said.
const DONE: &str = r#"
a :: confirm :: body={"id":7} :: confirmed :: is confirmed.
b :: not_executed :: attempts=1 :: confirmed :: is sent again when its turn comes
c :: end :: attempts=1 :: cancelled :: is cancelled.
d :: retry :: attempts=1 :: confirmed :: is sent again when its turn comes
"#;

#[tokio::test]
async fn each_deed_is_done_kept_and_told() {
    let bed = Bed::new().await;
    for key in ["a", "b", "c"] {
        bed.leaf.always().key(key).times(1).resets();
    }
    bed.leaf.always().key("d").times(1).refuses(422);
    let sidecar = bed.sidecar("in_doubt = \"park\"").await;
    let mut visitor = Visitor::of(&sidecar);
    for [key, deed, more, state, says] in table(DONE) {
        let id = bed.app.insert(keyed("leaf", key)).await;
        let waits = if key == "d" { "failed" } else { "parked" };
        bed.app.until_state(id, waits).await;
        let path = format!("/calls/{id}");
        let mut sent = vec![("do", deed), ("reason", "I looked"), ("who", "Ada")];
        sent.extend(fields(more));
        let done = visitor.post(&path, &sent).await;
        let page = visitor.follow(&done).await;
        page.assert_has(&[says, "Ada via the page from 127.0.0.1", "I looked"]);
        // It is said once.
        let page = visitor.get(&path).await;
        assert!(!page.text.contains("class=\"said"), "{}", page.text);
        bed.app.until_state(id, state).await;
    }
    let result = bed.app.results("leaf", "a").await.pop().unwrap();
    assert_eq!(
        (&result["source"], &result["body"]),
        (&json!("operator"), &json!({ "id": 7 }))
    );
    let actions =
        "SELECT string_agg(action, ' ' ORDER BY id) AS all FROM leafhopper.operator_action";
    assert_eq!(
        bed.app.rows(actions).await[0]["all"],
        "resolve_confirmed resolve_not_executed resolve_not_executed retry"
    );
    // It goes on where the form was, which is on this site.
    for (deed, back, to) in [
        ("pause", "/calls?leaf=leaf", "/calls?leaf=leaf"),
        ("resume", "//evil.example", "/"),
    ] {
        let sent = [("do", deed), ("reason", "x"), ("back", back)];
        let done = visitor.post("/leaves/leaf", &sent).await;
        assert_eq!(done.header("location"), to);
    }
}

/// What was found goes on behind what is shown.
async fn a_search_goes_on(visitor: &mut Visitor) {
    let page = visitor.get("/search?q=-").await;
    let further = page
        .text
        .split("href=\"")
        .find(|part| part.contains("before="));
    let further = further.unwrap().split('"').next().unwrap();
    let further = further.replace("&#x2f;", "/").replace("&amp;", "&");
    page.assert_has(&["These are the newest 50 that match"]);
    visitor
        .get(&further)
        .await
        .assert_has(&["These are the newest 50 that match, of those before"]);
}

#[tokio::test]
async fn many_are_counted_first_and_then_changed_by_a_job() {
    const MANY: usize = 120;
    let bed = Bed::new().await;
    bed.leaf.on("/things").times(MANY).refuses(422);
    let sidecar = bed.sidecar("concurrency = 32").await;
    let sql = format!(
        "INSERT INTO leafhopper.outbox (leaf, path) SELECT 'leaf', '/things' FROM generate_series(1, {MANY})"
    );
    bed.app.execute(&sql).await;
    let count = async |state: &str| {
        let sql = format!("SELECT count(*) FROM leafhopper.call WHERE state = '{state}'");
        bed.app.rows(&sql).await[0]["count"].clone()
    };
    until("all have failed", async || match count("failed").await {
        all if all == MANY => Ok(()),
        other => Err(other),
    })
    .await;
    let mut visitor = Visitor::of(&sidecar);
    let failed = "<a href=\"/calls?state=failed&amp;leaf=leaf\">120</a>";
    visitor
        .get("/")
        .await
        .assert_has(&[failed, "<b>120</b> failed, last hour"]);
    let page = visitor.get("/calls?leaf=leaf").await;
    assert!(!page.text.contains("They are counted first"), "{page:?}");
    let list = "/calls?state=failed&leaf=leaf";
    visitor
        .get(list)
        .await
        .assert_has(&["Send all again", "They are counted first"]);
    let first = [("do", "retry"), ("reason", "outage over"), ("who", "Ada")];
    let page = visitor.post(list, &first).await;
    page.assert_has(&[
        "120 calls</strong> would be changed",
        "value=\"outage over\"",
    ]);
    assert_eq!(
        count("failed").await,
        MANY,
        "nothing is changed by counting"
    );
    let sent = |expect| [&first[..], &[("expect", expect), ("spread", "1s")]].concat();
    let page = visitor.post(list, &sent("119")).await;
    let page = visitor.follow(&page).await;
    page.assert_has(&[
        "Not done.",
        "120 calls match now, and 119 were counted before",
    ]);
    let everything = visitor.post("/calls", &sent("120")).await;
    let page = visitor.follow(&everything).await;
    page.assert_has(&["Not done.", "say which calls are meant"]);
    assert_eq!(count("failed").await, MANY);

    let begun = visitor.post(list, &sent("120")).await;
    let job = begun.header("location").to_owned();
    assert!(job.starts_with("/jobs/"), "{job}");
    until("the job is done", async || {
        let page = Visitor::of(&sidecar).get(&job).await;
        let parts = [
            "120 of 120 done.",
            "Ada via the page from 127.0.0.1",
            ">done<",
        ];
        let done = parts.iter().all(|part| page.text.contains(part));
        if done { Ok(()) } else { Err(page.text) }
    })
    .await;
    bed.app.until_all_confirmed(MANY).await;
    // What is over can't be ended; who did what to many is one line.
    let end = [("do", "cancel"), ("reason", "too late")];
    let page = visitor.post(&job, &end).await;
    let page = visitor.follow(&page).await;
    page.assert_has(&["Not done.", "does not run any more"]);
    for path in ["/", "/jobs"] {
        let page = visitor.get(path).await;
        page.assert_has(&["retry 120 calls: outage over", &format!("href=\"{job}\"")]);
        assert_eq!(page.text.matches("outage over").count(), 1, "{page:?}");
    }
    a_search_goes_on(&mut visitor).await;
}
