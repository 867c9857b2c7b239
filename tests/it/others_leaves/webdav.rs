//! Apache with `mod_dav`, from Debian: files that are PUT.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use super::{
    OthersLeaf, SOMEBODY_ELSE, Taken,
    server::{Server, apache},
};
use crate::harness::app::{Call, call};

const CONFIG: &str = "\
    ServerRoot HERE\nServerName 127.0.0.1\nListen 127.0.0.1:PORT\nPidFile HERE/pid\n\
    LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
    LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
    LoadModule dav_module /usr/lib/apache2/modules/mod_dav.so\n\
    LoadModule dav_fs_module /usr/lib/apache2/modules/mod_dav_fs.so\n\
    ErrorLog HERE/log\nLogFormat \"%r %>s\" plain\nCustomLog HERE/log plain\n\
    DocumentRoot HERE/data\nDavLockDB HERE/locks\n\
    <Directory HERE/data>\nDav On\n</Directory>\n";

/// Asked about, since a PUT that is sent again may replace what somebody else has made of it.
pub(super) struct Documents(Server);

fn path(key: &str) -> String {
    format!("/document-{key}.json")
}

impl OthersLeaf for Documents {
    const NAME: &'static str = "documents";
    const TOML: &'static str = include_str!("../../leaves/apache.toml");
    const URL: &'static str = "http://127.0.0.1:8080";
    const TAKEN: Taken = Taken::Replaced;

    async fn start() -> Self {
        let words = apache(&["-X", "-f", "HERE/config"]);
        Self(Server::start(&words, &[("config", CONFIG)]).await)
    }

    fn server(&self) -> &Server {
        &self.0
    }

    fn call(key: &str) -> Call {
        let body = json!({ "key": key, "pages": [1, 2, 3], "title": "A document" });
        call(Self::NAME)
            .key(key)
            .method("PUT")
            .path(&path(key))
            .body(body)
    }

    async fn has_theirs(&self, key: &str) {
        let body = ("application/json", "{\"title\": \"Another\"}".to_owned());
        let (status, text) = self.0.ask("PUT", &path(key), Some(body)).await;
        assert_eq!(status, 201, "{text}");
    }

    /// The files themselves.
    async fn things(&self) -> BTreeMap<String, Vec<String>> {
        let mut things: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for file in fs::read_dir(self.0.data()).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            // What is still being uploaded has another name.
            if name.starts_with("document-") {
                let text = fs::read_to_string(&file).unwrap();
                let document: Value = serde_json::from_str(&text).unwrap();
                let key = document["key"].as_str().unwrap_or(SOMEBODY_ELSE);
                things.entry(key.to_owned()).or_default().push(name);
            }
        }
        things
    }

    /// The answer to a PUT is a page that names it; that of the question is what the row had.
    fn thing(result: &Value) -> String {
        let key = result["key"].as_str().unwrap();
        let name = path(key).trim_start_matches('/').to_owned();
        match result["source"].as_str().unwrap() {
            "adopted" => assert_eq!(result["body"]["key"], key, "{result}"),
            _ if result["status"] == 201 => {
                assert!(result["text"].as_str().unwrap().contains(&name), "{result}");
            }
            _ => assert_eq!(result["status"], 204, "{result}"),
        }
        name
    }

    fn creates(&self) -> usize {
        self.0.told_of("PUT /")
    }
}
