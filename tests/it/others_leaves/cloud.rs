//! moto, from `PyPI`: the APIs of AWS, of which two that could hardly differ more.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    OthersLeaf, SOMEBODY_ELSE, Taken,
    server::{Server, python},
};
use crate::harness::app::{Call, call};

const TOML: &str = include_str!("../../leaves/moto.toml");
const URL: &str = "http://127.0.0.1:5000";

/// What stands in `Authorization`; it doesn't check signatures.
pub(super) const EKS: &str = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-east-1/eks/aws4_request, \
    SignedHeaders=host, Signature=0";
pub(super) const IAM: &str = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-east-1/iam/aws4_request, \
    SignedHeaders=host, Signature=0";

/// All of them.
const CLUSTERS: &str = "/clusters?maxResults=100";
const USERS: &str = "/?Action=ListUsers&Version=2010-05-08";

const FORM: &str = "application/x-www-form-urlencoded";

async fn start() -> Server {
    let words = python(&["-m", "moto.server", "-H", "127.0.0.1", "-p", "PORT"]);
    Server::start(&words, &[]).await
}

/// What it needs for an API is loaded at the first request for it, which can take seconds.
async fn warm(server: Server, path: &str) -> Server {
    server.text(path).await;
    server
}

/// Clusters of EKS: JSON, and 409 to a second create.
pub(super) struct Clusters(Server);

fn cluster(key: &str, tags: &Value) -> Value {
    json!({
        "name": format!("cluster-{key}"),
        "roleArn": "arn:aws:iam::123456789012:role/eks",
        "resourcesVpcConfig": { "subnetIds": [] },
        "tags": tags,
    })
}

impl OthersLeaf for Clusters {
    const NAME: &'static str = "clusters";
    const TOML: &'static str = TOML;
    const URL: &'static str = URL;
    const TAKEN: Taken = Taken::Asked(409);

    async fn start() -> Self {
        Self(warm(start().await.authorized(EKS), CLUSTERS).await)
    }

    fn server(&self) -> &Server {
        &self.0
    }

    fn call(key: &str) -> Call {
        call(Self::NAME)
            .key(key)
            .path("/clusters")
            .body(cluster(key, &json!({ "leafhopper": key })))
    }

    async fn has_theirs(&self, key: &str) {
        let body = cluster(key, &json!({})).to_string();
        let json = "application/json";
        let (status, _) = self.0.ask("POST", "/clusters", Some((json, body))).await;
        assert_eq!(status, 200);
    }

    async fn things(&self) -> BTreeMap<String, Vec<String>> {
        let mut things: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let all = self.0.json(CLUSTERS).await;
        for name in all["clusters"].as_array().unwrap() {
            let path = format!("/clusters/{}", name.as_str().unwrap());
            let cluster = &self.0.json(&path).await["cluster"];
            let key = cluster["tags"]["leafhopper"]
                .as_str()
                .unwrap_or(SOMEBODY_ELSE);
            let of_key = things.entry(key.to_owned()).or_default();
            of_key.push(cluster["endpoint"].to_string());
        }
        things
    }

    fn thing(result: &Value) -> String {
        // A part of it is drawn by chance.
        result["body"]["cluster"]["endpoint"].to_string()
    }

    fn creates(&self) -> usize {
        self.0.told_of("\"POST /clusters HTTP")
    }
}

/// Users of IAM: a form is posted, XML comes back.
pub(super) struct Users(Server);

fn form(key: &str, tag: &str) -> String {
    format!("Action=CreateUser&Version=2010-05-08&UserName=user-{key}{tag}")
}

/// What is between `<name>` and `</name>` for the first time.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inner.to_owned())
}

impl OthersLeaf for Users {
    const NAME: &'static str = "users";
    const TOML: &'static str = TOML;
    const URL: &'static str = URL;
    const TAKEN: Taken = Taken::Asked(409);

    async fn start() -> Self {
        Self(warm(start().await.authorized(IAM), USERS).await)
    }

    fn server(&self) -> &Server {
        &self.0
    }

    fn call(key: &str) -> Call {
        let tag = format!("&Tags.member.1.Key=leafhopper&Tags.member.1.Value={key}");
        call(Self::NAME)
            .key(key)
            .path("/")
            .body_raw(FORM, &form(key, &tag))
            .set("meta", json!({ "user": format!("user-{key}") }))
    }

    async fn has_theirs(&self, key: &str) {
        let (status, _) = self.0.ask("POST", "/", Some((FORM, form(key, "")))).await;
        assert_eq!(status, 200);
    }

    async fn things(&self) -> BTreeMap<String, Vec<String>> {
        let mut things: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for user in self.0.text(USERS).await.split("<UserName>").skip(1) {
            let name = user.split('<').next().unwrap();
            let path = format!("/?Action=GetUser&Version=2010-05-08&UserName={name}");
            let user = self.0.text(&path).await;
            let key = element(&user, "Value").unwrap_or(SOMEBODY_ELSE.to_owned());
            let of_key = things.entry(key).or_default();
            of_key.push(element(&user, "UserId").unwrap());
        }
        things
    }

    fn thing(result: &Value) -> String {
        element(result["text"].as_str().unwrap(), "UserId").unwrap()
    }

    fn creates(&self) -> usize {
        self.0.told_of("\"POST / HTTP")
    }
}
