//! A visitor of the page without a browser: sends what a browser would, keeps cookies, and follows no redirect unasked.

use std::{collections::BTreeMap, time::Duration};

use reqwest::{Method, RequestBuilder, redirect::Policy};

use crate::harness::sidecar::Sidecar;

/// Somebody with cookies of their own.
pub(crate) struct Visitor {
    client: reqwest::Client,
    base: String,
    pub(crate) cookies: BTreeMap<String, String>,
    /// On each request.
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Page {
    /// A header of it, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    /// Panics unless all of these are in it.
    pub(crate) fn assert_has(&self, parts: &[&str]) {
        for part in parts {
            assert!(
                self.text.contains(part),
                "{part:?} is not in:\n{}",
                self.text
            );
        }
    }
}

impl Visitor {
    /// Somebody new.
    pub(crate) fn of(sidecar: &Sidecar) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .timeout(Duration::from_secs(15))
            .build();
        Self {
            client: client.unwrap(),
            base: sidecar.url(""),
            cookies: BTreeMap::new(),
            headers: Vec::new(),
        }
    }

    /// The same, with a header on each request.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        let request = self.client.get(format!("{}{path}", self.base));
        self.send(request).await
    }

    /// Sends a form, as the page itself does.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        let origin = self.base.clone();
        self.post_from(&origin, path, fields).await
    }

    /// Sends a form from a page of that origin.
    pub(crate) async fn post_from(
        &mut self,
        origin: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Page {
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", percent(value)))
            .collect();
        let request = self
            .client
            .request(Method::POST, format!("{}{path}", self.base))
            .header("origin", origin)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(fields.join("&"));
        self.send(request).await
    }

    /// Goes where a redirect leads.
    pub(crate) async fn follow(&mut self, page: &Page) -> Page {
        assert_eq!(page.status, 303, "{page:?}");
        let to = page.header("location").to_owned();
        self.get(&to).await
    }

    async fn send(&mut self, mut request: RequestBuilder) -> Page {
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = request.send().await.unwrap();
        let headers = response.headers().clone();
        for cookie in headers.get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        Page {
            status: response.status().as_u16(),
            headers,
            text: response.text().await.unwrap(),
        }
    }
}

/// As a part of a query or a form.
pub(crate) fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
