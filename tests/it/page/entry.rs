//! Who may look, who may act, and how one logs in (N02).

use std::time::Duration;

use super::visitor::{Visitor, percent};
use crate::{
    api::answers_of,
    harness::{
        Bed,
        app::call,
        sidecar::{Config, Sidecar},
    },
};

const TOKEN: &str = "a token of the tests, long enough";

/// Every path that shows rows.
const READS: [&str; 7] = [
    "/",
    "/jobs",
    "/calls",
    "/calls/1",
    "/batches",
    "/batches/x",
    "/search?q=a",
];

/// Every path that acts, with what a form would send.
const ACTS: [(&str, &str); 4] = [
    ("/calls/1", "cancel"),
    ("/batches/7c9e6679-7425-40de-944b-e07fc1f90ae7", "cancel"),
    ("/leaves/leaf", "pause"),
    ("/", "resume_all_resend"),
];

async fn closed(config: &Config) -> Sidecar {
    let config = config.clone().listen("admin_token = { env = \"TOKEN\" }");
    config.sidecar().environment("TOKEN", TOKEN).start().await
}

/// Nobody has changed anything.
async fn nothing_was_done(bed: &Bed) {
    let done = bed
        .app
        .rows("SELECT * FROM leafhopper.operator_action")
        .await;
    assert!(done.is_empty(), "{done:#?}");
}

#[tokio::test]
async fn without_the_token_nothing_is_shown_and_nothing_is_done() {
    let bed = Bed::new().await;
    let sidecar = closed(&bed.config("")).await;
    bed.app.insert(call("nobody").key("a-key")).await;
    let mut visitor = Visitor::of(&sidecar);
    for path in READS {
        let page = visitor.get(path).await;
        assert_eq!(page.status, 303, "{path}: {}", page.text);
        let login = format!("/login?to={}", percent(path).replace("%2F", "/"));
        let location = page.header("location");
        let plain = location
            .replace("%2F", "/")
            .replace("%3F", "?")
            .replace("%3D", "=");
        assert_eq!(plain, format!("/login?to={path}"), "{login}");
        assert!(!page.text.contains("a-key"));
    }
    for (path, deed) in ACTS {
        let fields = [("do", deed), ("reason", "because")];
        let page = visitor.post(path, &fields).await;
        assert_eq!(page.status, 401, "{path}: {}", page.text);
        page.assert_has(&["nobody is logged in"]);
        // A forged session, and none that a token has opened.
        visitor.cookies.insert(
            "leafhopper_session".to_owned(),
            "1.99999999999.x.YWRh.AAAA".to_owned(),
        );
        let page = visitor.post(path, &fields).await;
        assert_eq!(page.status, 401, "{path}: {}", page.text);
        visitor.cookies.clear();
    }
    // The script's own look says so without a redirect.
    let mut poll = Visitor::of(&sidecar).with("x-leafhopper-poll", "1");
    assert_eq!(poll.get("/").await.status, 401);
    // A path with nothing, as a browser asks for it.
    let mut browser = Visitor::of(&sidecar).with("accept", "text/html,*/*;q=0.8");
    let nothing = browser.get("/nothing").await;
    assert_eq!(nothing.status, 404);
    nothing.assert_has(&["there is nothing at this path", "href=\"/\""]);
    // What everybody may have.
    let login = visitor.get("/login").await;
    assert_eq!(login.status, 200);
    let css = login
        .text
        .split("href=\"")
        .find(|part| part.contains(".css"));
    let css = css
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .replace("&#x2f;", "/");
    let css = visitor.get(&css).await;
    assert_eq!(
        (css.status, css.header("content-type")),
        (200, "text/css; charset=utf-8")
    );
    assert!(css.header("cache-control").contains("immutable"));
    assert!(!css.header("etag").is_empty());
    nothing_was_done(&bed).await;
}

#[tokio::test]
async fn a_login_opens_a_session_that_holds_everywhere_and_ends_with_the_token() {
    let bed = Bed::new().await;
    let config = bed.config("");
    let sidecar = closed(&config).await;
    let id = bed.app.insert(call("nobody")).await;
    let here = format!("/calls/{id}");
    let mut visitor = Visitor::of(&sidecar);
    let form = |token, name, to| [("token", token), ("name", name), ("to", to)];
    let wrong = visitor.post("/login", &form("wrong", "Ada", &here)).await;
    assert_eq!(wrong.status, 401);
    wrong.assert_has(&["not the token of listen.admin_token", "value=\"Ada\""]);
    assert!(visitor.cookies.is_empty() && !wrong.text.contains("wrong\""));
    let nameless = visitor.post("/login", &form(TOKEN, " ", &here)).await;
    assert_eq!(nameless.status, 422);
    // Another site must not log somebody in under a name of its choice.
    let foreign = "http://evil.example";
    let page = visitor
        .post_from(foreign, "/login", &form(TOKEN, "Mallory", "/"))
        .await;
    assert_eq!(page.status, 403, "{}", page.text);
    let away = visitor
        .post("/login", &form(TOKEN, "Ada", "//evil.example/"))
        .await;
    assert_eq!(away.header("location"), "/");
    visitor.cookies.clear();

    let opened = visitor.post("/login", &form(TOKEN, "Ada", &here)).await;
    assert_eq!(
        (opened.status, opened.header("location")),
        (303, here.as_str())
    );
    let cookie = opened.header("set-cookie").to_owned();
    for part in ["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(
        !cookie.contains("Secure") && !cookie.contains(TOKEN),
        "{cookie}"
    );
    let page = visitor.follow(&opened).await;
    page.assert_has(&["Ada", "Log out", "leaf_unknown"]);

    let mut by_https = Visitor::of(&sidecar).with("x-forwarded-proto", "https");
    let opened = by_https.post("/login", &form(TOKEN, "Ada", "/")).await;
    assert!(opened.header("set-cookie").contains("; Secure"));

    // The same at another instance; not where the token is another one.
    let second = closed(&config).await;
    let mut there = Visitor::of(&second);
    there.cookies = visitor.cookies.clone();
    assert_eq!(there.get(&here).await.status, 200);
    let other = config.listen("admin_token = { env = \"TOKEN\" }");
    let other = other
        .sidecar()
        .environment("TOKEN", "another token, as long as it");
    let other = other.start().await;
    let mut there = Visitor::of(&other);
    there.cookies = visitor.cookies.clone();
    assert_eq!(there.get(&here).await.status, 303);

    // With the session one may act, under one's name, and not from another site.
    let cancel = [
        ("do", "cancel"),
        ("reason", "a mistake"),
        ("who", "somebody else"),
    ];
    let page = visitor.post_from(foreign, &here, &cancel).await;
    assert_eq!(page.status, 403, "{}", page.text);
    nothing_was_done(&bed).await;
    let done = visitor.post(&here, &cancel).await;
    visitor
        .follow(&done)
        .await
        .assert_has(&["is cancelled", "Ada via the page from 127.0.0.1"]);

    let out = visitor.post("/logout", &[]).await;
    assert!(out.header("set-cookie").contains("Max-Age=0"));
    assert!(visitor.cookies.is_empty());
    assert_eq!(visitor.get(&here).await.status, 303);
}

#[tokio::test]
async fn who_guesses_tokens_has_to_wait() {
    let bed = Bed::new().await;
    let sidecar = closed(&bed.config("")).await;
    let mut visitor = Visitor::of(&sidecar);
    let mut last = 0;
    for n in 0..20 {
        let guess = format!("guess {n}");
        let form = [("token", guess.as_str()), ("name", "Mallory")];
        let page = visitor.post("/login", &form).await;
        last = page.status;
        if last == 429 {
            page.assert_has(&["try again in"]);
            assert!(!page.header("retry-after").is_empty());
            break;
        }
    }
    assert_eq!(last, 429);
    let form = [("token", TOKEN), ("name", "Ada")];
    assert_eq!(
        visitor.post("/login", &form).await.status,
        429,
        "not even the right one"
    );
}

/// What an answer is waited for. The limits themselves are five seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// A form of so many bytes, none of which is sent beyond the first `sent`.
fn form(path: &str, length: usize, sent: usize) -> String {
    let body = format!("do=pause&token=x&name=Ada&reason={}", "x".repeat(length));
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {length}\r\n\r\n{}",
        &body[..sent]
    )
}

#[tokio::test]
async fn a_form_is_read_within_the_limits_of_every_request() {
    let bed = Bed::new().await;
    let open = bed.sidecar("").await;
    let closed = closed(&bed.config("")).await;
    let (login, deed) = ("/login", "/leaves/leaf");
    let send = async |to, path, length, sent| {
        let answer = answers_of(to, form(path, length, sent), PATIENCE).await;
        (path, length, answer)
    };
    let (a, b, c, d, e) = tokio::join!(
        send(&closed, login, 8 * 1024, 8 * 1024),
        send(&closed, login, 8 * 1024 + 1, 8 * 1024 + 1),
        send(&closed, login, 100, 10),
        send(&open, deed, 1024 * 1024 + 1, 1024 * 1024 + 1),
        send(&open, deed, 100, 10),
    );
    for ((path, length, answer), status, says) in [
        (a, 401, "That is not the token"),
        (b, 413, "at most 8192 bytes are"),
        (c, 408, "was not there within 5 s"),
        (d, 413, "at most 1048576 bytes are"),
        (e, 408, "was not there within 5 s"),
    ] {
        let what = format!("{length} bytes for {path}: {answer}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}");
        assert!(answer.contains("content-type: text/html"), "{what}");
        assert!(answer.contains(says), "{what}");
    }
    nothing_was_done(&bed).await;
}

#[tokio::test]
async fn a_link_on_another_site_leads_in_by_a_page_of_this_one() {
    let bed = Bed::new().await;
    let sidecar = closed(&bed.config("")).await;
    // The browser keeps a strict cookie back here …
    let mut from_chat = Visitor::of(&sidecar).with("sec-fetch-site", "cross-site");
    let page = from_chat.get("/calls/7?x=1").await;
    assert_eq!(page.status, 200);
    let url = "&#x2f;login?to=%2Fcalls%2F7%3Fx%3D1";
    page.assert_has(&[&format!("http-equiv=\"refresh\" content=\"0; url={url}\"")]);
    assert!(!page.text.contains("<script"), "{}", page.text);
    // … and brings it where that page leads: whoever is logged in goes on, everybody else is asked.
    let mut ada = Visitor::of(&sidecar);
    let form = [("token", TOKEN), ("name", "Ada")];
    ada.post("/login", &form).await;
    let page = ada.get("/login?to=%2Fcalls%2F7%3Fx%3D1").await;
    assert_eq!(
        (page.status, page.header("location")),
        (303, "/calls/7?x=1")
    );
    let page = ada.get("/login?to=https%3A%2F%2Fevil.example").await;
    assert_eq!((page.status, page.header("location")), (303, "/"));
    let asked = Visitor::of(&sidecar).get("/login?to=%2Fcalls%2F7").await;
    asked.assert_has(&["value=\"&#x2f;calls&#x2f;7\"", "type=\"password\""]);
}

#[tokio::test]
async fn on_this_machine_without_a_token_the_page_acts_and_no_other_site_does() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let id = bed.app.insert(call("nobody")).await;
    assert_eq!(id, 1, "the paths of this module name it");
    let mut visitor = Visitor::of(&sidecar);
    for (path, deed) in ACTS {
        let fields = [("do", deed), ("reason", "because")];
        for origin in ["http://evil.example", "null", "http://localhost:1"] {
            let page = visitor.post_from(origin, path, &fields).await;
            assert_eq!(page.status, 403, "{path} from {origin}: {}", page.text);
        }
        // A link or an image of anybody is a GET.
        let page = visitor
            .get(&format!("{path}?do={deed}&reason=because"))
            .await;
        assert_ne!(page.status, 303, "{path}");
    }
    let mut proxied = Visitor::of(&sidecar).with("x-forwarded-for", "10.0.0.7");
    for path in READS {
        assert_eq!(proxied.get(path).await.status, 403, "{path}");
    }
    nothing_was_done(&bed).await;
    let [(path, deed), ..] = ACTS;
    let done = visitor
        .post(path, &[("do", deed), ("reason", "a mistake")])
        .await;
    visitor
        .follow(&done)
        .await
        .assert_has(&["page from 127.0.0.1", "a mistake"]);
    // Who says a name is remembered.
    let fields = [
        ("do", "pause"),
        ("reason", "their maintenance"),
        ("who", " Ada L. "),
    ];
    let done = visitor.post("/leaves/leaf", &fields).await;
    visitor.follow(&done).await.assert_has(&[
        "Leaf leaf is paused",
        "Ada L. via the page from 127.0.0.1",
        "value=\"Ada L.\"",
    ]);
}
