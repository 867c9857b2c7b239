//! Probes that rows bring along: somebody else's text.

use serde_json::{Value, json};

use super::{QUICK, asked_and_sent, post};
use crate::harness::Bed;

#[tokio::test]
async fn a_row_s_own_probe_goes_before_the_leaf_s() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let toml = "[leaf.leaf.probe]\npath = \"/nowhere\"\nsettle = \"1h\"";
    let _sidecar = bed
        .config(QUICK)
        .toml(toml)
        .leaf("other", &bed.leaf.url(), QUICK)
        .start()
        .await;
    let probe = json!({ "path": "/effects/{{ call.body.key }}", "found": "{'id': response.body.id}", "settle": "1d" });
    let id = bed.app.insert(post("k").set("probe", probe.clone())).await;
    bed.app.until_state(id, "confirmed").await;
    let result = bed.app.results("leaf", "k").await.remove(0);
    assert_eq!(result["body"], json!({ "id": 1 }));
    assert_eq!(result["weak"], false);
    // A leaf without a probe asks by the row's.
    let row = crate::harness::app::keyed("other", "o").set("probe", probe);
    let other = bed.app.insert(row).await;
    bed.app.until_state(other, "confirmed").await;
    bed.leaf.assert_each_effect_once(["k", "o"]);
}

/// A name, a probe, and what is said of it.
#[rustfmt::skip]
fn faulty() -> Vec<(&'static str, Value, &'static str)> {
    let path = |path: &str| json!({ "path": path });
    let found = |found: Value| json!({ "path": "/effects/{{ call.key }}", "found": found });
    let doubling = "/{% set n = namespace(x='aaaaaaaaaa') %}{% for i in range(60) %}\
                    {% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}";
    vec![
        ("syntax", path("/{{ call.key"), "path: the template does not compile"),
        ("unknown", path("/{{ row.key }}"), "`row` is not known here"),
        ("no response yet", path("/{{ response.body }}"), "`response` is not known here"),
        ("missing", path("/{{ call.body.owner }}"), "undefined"),
        ("empty", path("/{{ call.body.empty }}"), "empty"),
        ("dots", path("/a/{{ '..' }}/b"), "dot segment"),
        ("plain dots", path("/../b"), "segment"),
        ("object", path("/{{ call.body }}"), "neither text nor a number"),
        ("huge number", path("/{{ call.body.huge }}"), "no whole one"),
        ("loop", path("/{% for i in range(100000) %}x{% endfor %}"), "fuel"),
        ("nested loops", path("/{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"), "fuel"),
        ("repetition", path("/{{ 'x' * 1000000000 }}"), "any size"),
        ("doubling", path(doubling), "any size"),
        ("recursion", path("/{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "any size"),
        ("include", path("/{% include 'secrets' %}"), "not allowed"),
        ("long", path(&format!("/{}", "x".repeat(5000))), "4096 are allowed"),
        ("host", path("//elsewhere/x"), "one `/`"),
        ("found syntax", found(json!("response.body if")), "found: the expression does not compile"),
        ("found name", found(json!("respnse")), "`respnse` is not known here"),
        ("found true", found(json!(true)), "found: true is no text"),
        ("found null", found(Value::Null), "found: null is no text"),
        ("settle number", json!({ "path": "/x", "settle": 5 }), "settle: 5 is no text"),
        ("settle word", json!({ "path": "/x", "settle": "soon" }), "settle: \"soon\" is not a duration"),
        ("settle negative", json!({ "path": "/x", "settle": "-1s" }), "negative"),
        ("settle long", json!({ "path": "/x", "settle": "99999999h" }), "longer than a year"),
        ("max_probes", json!({ "path": "/x", "max_probes": 0 }), "max_probes: 0"),
        ("max_probes text", json!({ "path": "/x", "max_probes": "3" }), "max_probes: \"3\""),
        ("max_probes large", json!({ "path": "/x", "max_probes": 1e30 }), "max_probes"),
    ]
}

#[tokio::test]
async fn a_row_s_probe_that_is_no_probe_parks_and_says_why() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let sidecar = bed.config(QUICK).start().await;
    let mut ids = Vec::new();
    for (name, probe, _) in &faulty() {
        let huge: Value = serde_json::from_str("123456789012345678901234567890").unwrap();
        let body = json!({ "key": name, "empty": "", "huge": huge });
        ids.push(
            bed.app
                .insert(post(name).body(body).set("probe", probe.clone()))
                .await,
        );
    }
    for ((name, _, why), id) in faulty().iter().zip(ids) {
        let call = bed.app.until_state(id, "parked").await;
        assert_eq!(call["reason"], "template", "{name}: {call}");
        let error = call["last_error"].as_str().unwrap();
        assert!(
            error.starts_with("its probe: ") && error.contains(why),
            "{name}: {error}"
        );
        assert_eq!(asked_and_sent(&bed, name).0, 0, "{name}");
        assert_eq!(
            bed.app.history(id).await,
            "in_doubt, probe_unclear",
            "{name}"
        );
        if *name == "found name" {
            let shown = sidecar.command(&["show", &id.to_string()]).await;
            let shown = String::from_utf8(shown.stdout).unwrap();
            for part in [
                "can't be rendered",
                "`respnse` is not known",
                "--not-executed",
            ] {
                assert!(shown.contains(part), "{part} in:\n{shown}");
            }
        }
    }
    assert!(sidecar.log().iter().all(|line| line["level"] != "ERROR"));
}

#[tokio::test]
async fn an_expression_that_makes_too_much_parks_its_call_and_harms_nobody() {
    let bed = Bed::new().await;
    bed.leaf.on("/things").resets();
    let config = bed.config(QUICK);
    let sidecar = config.start().await;
    let mut ids = Vec::new();
    let hostile = ["[range(99999)]|list", "range(99999999)|list"];
    for (number, found) in hostile.iter().enumerate() {
        let probe = json!({ "path": "/effects/{{ call.key }}", "found": found, "max_probes": 2 });
        ids.push(
            bed.app
                .insert(post(&format!("k{number}")).set("probe", probe))
                .await,
        );
    }
    for id in ids {
        let call = bed.app.until_state(id, "parked").await;
        assert_eq!(call["reason"], "probe_unclear");
        assert!(
            call["last_error"]
                .as_str()
                .unwrap()
                .starts_with("`found`: "),
            "{call}"
        );
    }
    assert_eq!(sidecar.get("/livez").await.0, 200);
}
