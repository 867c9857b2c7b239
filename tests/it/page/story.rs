//! The page in a real browser: somebody finds what is stuck, understands it, mends it, and sees it mended.

use super::{
    browser::{Browser, ENTER, TAB},
    rows::hostile,
    scene::Scene,
};
use crate::harness::{Bed, app::keyed, sidecar::Sidecar, wait::until};

/// An element that has this text.
fn with_text(element: &str, text: &str) -> String {
    format!("//{element}[contains(normalize-space(.), '{text}')]")
}

async fn complains_of_nothing(browser: &Browser) {
    let complaints = browser.complaints().await;
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_finds_what_is_stuck_understands_it_and_mends_it() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let scene = Scene::play("").await;
    let parked = scene.parked;
    browser.open(&scene.sidecar.url("/")).await;
    browser.until_says("What is stuck, and why").await;
    // From the number to the list, from there to the call.
    browser.click(&with_text("a", "2 calls like this")).await;
    browser.click(&with_text("a", &parked.to_string())).await;
    browser
        .until_says("Look at the leaf, then say what is true.")
        .await;
    browser.until_says("attempt 1 may have been executed").await;
    browser
        .click(&with_text("summary", "It was done: confirm"))
        .await;
    browser
        .write("//details[@open]//input[@name='reason']", "half a reason")
        .await;
    // The page lives on meanwhile, and takes nothing from under one's hands.
    live_while_writing(&browser, &scene, parked).await;
    browser
        .write(
            "//details[@open]//input[@name='reason']",
            ": it is in their list",
        )
        .await;
    browser
        .write("//details[@open]//input[@name='who']", "Ada")
        .await;
    browser.click("//details[@open]//form/button").await;
    browser
        .until_says(&format!("Call {parked} is confirmed."))
        .await;
    browser.until_says("confirmed: a person's word").await;
    browser
        .until_says("half a reason: it is in their list")
        .await;
    assert_eq!(scene.bed.app.state(parked).await, "confirmed");
    complains_of_nothing(&browser).await;
    overtaken_while_writing(&browser, &scene).await;
    browser
        .open(&scene.sidecar.url(&format!("/batches/{}", scene.batch)))
        .await;
    browser.until_says("charge is locked by a dispute").await;
    browser
        .click(&with_text("summary", "Let the effect stand"))
        .await;
    browser
        .write(
            "//details[@open]//input[@name='reason']",
            "they keep the money",
        )
        .await;
    browser.click("//details[@open]//form/button").await;
    browser.until_says("is waived: the effect stands").await;
    // Nobody reloads: the teardown goes on, and the page with it.
    browser.until_says("One effect of it stands").await;
    complains_of_nothing(&browser).await;
    browser.close().await;
}

/// Something changes while somebody writes: it shows, and what is written stays.
async fn live_while_writing(browser: &Browser, scene: &Scene, parked: i64) {
    let sql = format!(
        "INSERT INTO leafhopper.attempt (call_id, attempt, class, error) \
         VALUES ({parked}, 1, 'probe_unclear', 'written by the test')"
    );
    scene.bed.app.execute(&sql).await;
    browser.until_says("written by the test").await;
    let kept = "const field = document.activeElement; return [field.name, field.value];";
    let kept = browser.run(kept).await;
    assert_eq!(kept, serde_json::json!(["reason", "half a reason"]));
}

/// Somebody else is faster: that shows at once, what was written stays, and it is not done a second time.
async fn overtaken_while_writing(browser: &Browser, scene: &Scene) {
    let older = scene.older;
    let here = scene.sidecar.url(&format!("/calls/{older}"));
    browser.open(&here).await;
    browser
        .click(&with_text("summary", "It was not done: send it"))
        .await;
    let reason = "//details[@open]//input[@name='reason']";
    browser.write(reason, "not in their list").await;
    let by_bob = ["--confirmed", "--reason", "Bob was faster"];
    let id = older.to_string();
    let by_bob = [&["resolve", &id], &by_bob[..]].concat();
    assert!(scene.sidecar.command(&by_bob).await.status.success());
    browser.until_says("Bob was faster").await;
    browser
        .find("//*[contains(@class, 'stale')]//details[@open]")
        .await;
    let kept = browser.run("return document.activeElement.value").await;
    assert_eq!(kept, "not in their list");
    browser.keys(ENTER).await;
    browser.until_says("Not done.").await;
    browser.until_says("Nothing is left to do.").await;
    let complaints = browser.complaints().await;
    let of_the_refusal = |complaint: &String| complaint.contains("409 (Conflict)");
    assert!(
        complaints.len() == 1 && complaints.iter().all(of_the_refusal),
        "{complaints:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_in_a_row_stays_text_and_the_keyboard_is_enough() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let bed = Bed::new().await;
    bed.leaf.always().key("lost").resets();
    let token = "a token of the tests, long enough";
    let config = bed
        .config("in_doubt = \"park\"")
        .listen("admin_token = { env = \"TOKEN\" }");
    let mut sidecar = config.sidecar().environment("TOKEN", token).start().await;
    let evil = bed.app.insert(hostile("nobody")).await;
    let lost = bed.app.insert(keyed("leaf", "lost")).await;
    bed.app.until_state(lost, "parked").await;
    // Whoever has no session is asked, and then is where they wanted to go.
    browser.open(&sidecar.url(&format!("/calls/{evil}"))).await;
    browser.until_says("Log in").await;
    browser.keys(&format!("Ada{TAB}{token}{ENTER}")).await;
    browser.until_says(&format!("Call {evil}")).await;
    browser.until_says("window.evil=1").await;
    assert_eq!(browser.run("return window.evil === undefined").await, true);
    let scripts =
        "return [...document.scripts].map((script) => new URL(script.src).pathname.slice(0, 8))";
    assert_eq!(browser.run(scripts).await, serde_json::json!(["/assets/"]));
    fits_a_phone(&browser, &sidecar, evil).await;
    by_keyboard(&browser, &sidecar, lost).await;
    assert_eq!(bed.app.state(lost).await, "confirmed");
    complains_of_nothing(&browser).await;
    // From another site, as a link in a chat: straight to the page, since the session is there.
    from_elsewhere(&browser, &sidecar, lost).await;
    // It says when it no longer knows.
    sidecar.kill();
    browser.until_says("not live since").await;
    browser.close().await;
}

/// Nothing has to be scrolled sideways, however long the words of rows are.
async fn fits_a_phone(browser: &Browser, sidecar: &Sidecar, evil: i64) {
    browser.screen(360, 740, "dark").await;
    for path in [
        "/".to_owned(),
        "/calls".to_owned(),
        format!("/calls/{evil}"),
    ] {
        browser.open(&sidecar.url(&path)).await;
        let width = browser
            .run("return document.documentElement.scrollWidth")
            .await;
        assert_eq!(width, 360, "{path}");
    }
}

/// From the overview to the confirmation, without a mouse.
async fn by_keyboard(browser: &Browser, sidecar: &Sidecar, lost: i64) {
    browser.open(&sidecar.url("/")).await;
    browser.until_says("What is stuck, and why").await;
    browser.keys(TAB).await;
    let focused = "return document.activeElement.textContent.trim()";
    assert_eq!(browser.run(focused).await, "Skip to the content");
    browser.keys(ENTER).await;
    until("the button has the focus", async || {
        browser.keys(TAB).await;
        let text = browser.run(focused).await;
        if text == "It was done: confirm" {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    // What has the focus shows.
    let outline = "return getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.run(outline).await, "solid");
    browser.keys(ENTER).await;
    browser
        .keys(&format!("{TAB}it is in their list{ENTER}"))
        .await;
    browser
        .until_says(&format!("Call {lost} is confirmed."))
        .await;
    browser.until_says("Ada via the page from 127.0.0.1").await;
}

/// A page of another site with a link to this one.
async fn from_elsewhere(browser: &Browser, sidecar: &Sidecar, lost: i64) {
    let here = sidecar.url(&format!("/calls/{lost}"));
    // Another site than an address: localhost.
    let elsewhere = sidecar.url("/login").replace("127.0.0.1", "localhost");
    browser.open(&elsewhere).await;
    let link = format!(
        "const link = document.createElement('a'); link.href = '{here}'; document.body.append(link); link.click()"
    );
    browser.run(&link).await;
    browser.until_says(&format!("Call {lost} confirmed")).await;
    assert_eq!(browser.url().await, here);
}
