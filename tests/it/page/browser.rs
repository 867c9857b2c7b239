//! A headless Chromium, driven by its WebDriver over plain HTTP (W3C WebDriver, and what ChromeDriver adds to it).
//!
//! `.ci/chromium` gets it. Where `LEAFHOPPER_BROWSER=required` (CI sets it once it is there) a missing one is a failure.
//! Else what needs it is not tried, and that is said past the capture of a test's output.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    clients::not_tried,
    harness::{folder::Folder, wait::until},
};

/// How elements are named in WebDriver's JSON (section 12.3).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The keyboard's keys that are no characters (section 17.4.2).
pub(super) const TAB: &str = "\u{e004}";
pub(super) const ENTER: &str = "\u{e007}";

/// A browser with one window; it ends with this value.
pub(super) struct Browser {
    driver: Child,
    /// The session's url.
    session: String,
    client: reqwest::Client,
    /// The profile: nothing is kept between two tests.
    profile: Folder,
}

/// Something on the page.
#[derive(Debug, Clone)]
pub(super) struct Element(String);

fn is_here() -> bool {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok();
    runs("chromium") && runs("chromedriver")
}

impl Browser {
    /// Starts one; `None` where there is none to start, and none is required.
    pub(super) async fn start() -> Option<Self> {
        if !is_here() {
            not_tried("Chromium", ".ci/chromium", "LEAFHOPPER_BROWSER");
            return None;
        }
        let mut driver = Command::new("chromedriver")
            .args(["--port=0", "--log-level=SEVERE"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port: u16 = lines
            .find_map(|line| {
                let line = line.unwrap();
                let (_, port) = line.split_once("successfully on port ")?;
                port.trim_end_matches('.').parse().ok()
            })
            .expect("chromedriver says its port");
        // Whoever writes into a pipe that nobody reads stops one day.
        std::thread::spawn(move || lines.for_each(drop));
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()
            .unwrap();
        let mut browser = Self {
            driver,
            session: format!("http://127.0.0.1:{port}/session"),
            client,
            profile: Folder::new(),
        };
        let profile = browser.profile.path().display().to_string();
        let started = browser.post("", &capabilities(&profile)).await;
        let id = started["sessionId"].as_str().unwrap().to_owned();
        browser.session = format!("{}/{id}", browser.session);
        Some(browser)
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.session));
        let request = request.header("content-type", "application/json");
        self.answer(path, request.body(body.to_string())).await
    }

    async fn get(&self, path: &str) -> Value {
        let request = self.client.get(format!("{}{path}", self.session));
        self.answer(path, request).await
    }

    async fn answer(&self, path: &str, request: reqwest::RequestBuilder) -> Value {
        let found = self.try_answer(request).await;
        found.unwrap_or_else(|error| panic!("WebDriver {path}: {error}"))
    }

    async fn try_answer(&self, request: reqwest::RequestBuilder) -> Result<Value, String> {
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        if status.is_success() {
            Ok(answer["value"].clone())
        } else {
            Err(answer["value"].to_string())
        }
    }

    /// Goes to a url, as somebody who types it.
    pub(super) async fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url })).await;
    }

    /// The url that it shows.
    pub(super) async fn url(&self) -> String {
        self.get("/url").await.as_str().unwrap().to_owned()
    }

    /// What a script gives, run as if the page had it.
    pub(super) async fn run(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.post("/execute/sync", &body).await
    }

    /// Waits for the first element that this XPath finds.
    pub(super) async fn find(&self, xpath: &str) -> Element {
        until(&format!("the page has {xpath}"), async || {
            let body = json!({ "using": "xpath", "value": xpath });
            let request = self.client.post(format!("{}/element", self.session));
            let request = request.header("content-type", "application/json");
            let found = self.try_answer(request.body(body.to_string())).await;
            match found {
                Ok(found) => Ok(Element(found[ELEMENT].as_str().unwrap().to_owned())),
                Err(error) => Err(format!("{error}\n{}", self.text().await)),
            }
        })
        .await
    }

    /// Clicks the first element that this XPath finds.
    pub(super) async fn click(&self, xpath: &str) {
        let Element(id) = self.find(xpath).await;
        self.post(&format!("/element/{id}/click"), &json!({})).await;
    }

    /// Types into the first element that this XPath finds.
    pub(super) async fn write(&self, xpath: &str, text: &str) {
        let Element(id) = self.find(xpath).await;
        let body = json!({ "text": text });
        self.post(&format!("/element/{id}/value"), &body).await;
    }

    /// Types, wherever the focus is.
    pub(super) async fn keys(&self, text: &str) {
        let actions: Vec<Value> = text
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key })))
            .collect();
        let body = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] });
        self.post("/actions", &body).await;
    }

    /// What a person reads on the page.
    pub(super) async fn text(&self) -> String {
        let text = self
            .run("return document.body ? document.body.innerText : ''")
            .await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a person reads this.
    pub(super) async fn until_says(&self, words: &str) {
        until(&format!("the page says {words:?}"), async || {
            let text = self.text().await;
            if text.contains(words) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
    }

    /// What the browser has complained of since it was last asked: faults of scripts, breaches of the content policy,
    /// files that are missing.
    pub(super) async fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "browser" })).await;
        let entries = log.as_array().unwrap().iter();
        let messages = entries.map(|entry| entry["message"].as_str().unwrap().to_owned());
        messages.collect()
    }

    /// Shows the page as on a screen of that size, light or dark.
    pub(super) async fn screen(&self, width: u32, height: u32, scheme: &str) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.developer("Emulation.setDeviceMetricsOverride", &metrics)
            .await;
        let media = json!({
            "features": [
                { "name": "prefers-color-scheme", "value": scheme },
                { "name": "prefers-reduced-motion", "value": "reduce" },
            ],
        });
        self.developer("Emulation.setEmulatedMedia", &media).await;
    }

    /// A picture of the page from its top, as a PNG; at most that high.
    pub(super) async fn picture(&self, height_max: u64) -> Vec<u8> {
        let page = "document.documentElement";
        let size = format!("return [{page}.scrollWidth, {page}.scrollHeight]");
        let size = self.run(&size).await;
        let height = size[1].as_u64().unwrap().min(height_max);
        let params = json!({
            "format": "png",
            "captureBeyondViewport": true,
            "clip": { "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 },
        });
        let taken = self.developer("Page.captureScreenshot", &params).await;
        BASE64.decode(taken["data"].as_str().unwrap()).unwrap()
    }

    /// A command of the Chrome DevTools Protocol.
    async fn developer(&self, command: &str, params: &Value) -> Value {
        let body = json!({ "cmd": command, "params": params });
        self.post("/goog/cdp/execute", &body).await
    }

    /// Ends it.
    pub(super) async fn close(mut self) {
        let end = self.client.delete(&self.session).send().await;
        end.unwrap();
        self.driver.kill().unwrap();
        self.driver.wait().unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Where a failing test did not close it, the driver's end leaves the browser behind: it is known by its profile.
        self.driver.kill().ok();
        self.driver.wait().ok();
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let ours = String::from_utf8_lossy(&line).contains(&profile);
            let pid = process.file_name().to_string_lossy().parse().ok();
            if let Some(pid) = pid.filter(|_| ours).and_then(Pid::from_raw) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}

/// No sandbox, since the tests may run as root; no service of its maker; no kept profile.
fn capabilities(profile: &str) -> Value {
    json!({
        "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
                format!("--user-data-dir={profile}"),
            ] },
        } },
    })
}
