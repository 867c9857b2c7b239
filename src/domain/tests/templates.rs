//! What templates and expressions give, and what they may not hold.

use serde_json::json;

use crate::domain::template::{SOURCE_MAX, check_expression, check_path, evaluate, render_path};

fn rendered(template: &str) -> Result<String, String> {
    let call = json!({ "call": { "key": "site:42", "path": "/a%2Fb/c?d=e", "body": {
        "owner": "ada", "name": "a/b c", "n": 7, "empty": "", "dots": "..", "list": [1], "none": null, "ü": "ü",
        "half": 1.5, "huge": 12_345_678_901_234_567_890_123.0, "long": "x".repeat(1000),
    }}});
    render_path(template, &call).map_err(|error| error.to_string())
}

#[test]
fn each_interpolation_is_one_segment() {
    for (template, path) in [
        ("/repos/{{ call.body.owner }}", "/repos/ada"),
        (
            "/repos/{{ call.body.name }}?n={{ call.body.n }}",
            "/repos/a%2Fb%20c?n=7",
        ),
        ("/{{ call.key }}", "/site%3A42"),
        ("/{{ call.body['ü'] }}", "/%C3%BC"),
        ("/x{% if call.body.n == 7 %}/y{% endif %}", "/x/y"),
        ("{{ call.path }}", "/a%2Fb/c?d=e"),
        (
            "/of{{call.path}}&n={{ call.body.n }}",
            "/of/a%2Fb/c?d=e&n=7",
        ),
        ("/{{ call.path ~ '' }}", "/%2Fa%252Fb%2Fc%3Fd%3De"),
    ] {
        assert_eq!(rendered(template).as_deref(), Ok(path), "{template}");
    }
}

#[test]
fn what_gives_no_path_says_why() {
    for (template, why) in [
        ("/{{ call.body.empty }}", "empty"),
        ("/{{ call.body.dots }}", "dot segment"),
        ("/{{ call.body.list }}", "neither text nor a number"),
        ("/{{ call.body.none }}", "not there"),
        ("/{{ call.body.missing }}", "undefined"),
        ("/{{ call.body.missing.deeper }}", "undefined"),
        ("{{ call.key }}", "exactly one"),
        ("/../x", "segment"),
        ("/{{ call.path }}", "exactly one"),
        ("/{{ call.body.owner|safe }}", "unknown filter"),
        ("/{{ call.body.half }}", "no whole one"),
        ("/{{ call.body.huge }}", "no whole one"),
        (
            "/{% for i in range(100) %}{{ call.body.long }}{% endfor %}",
            "8000 are allowed",
        ),
        (
            "/{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "any size",
        ),
        ("/{{ call.key", "syntax error"),
        ("/{% for i in range(100000) %}x{% endfor %}", "fuel"),
    ] {
        let said = rendered(template).unwrap_err();
        assert!(said.to_lowercase().contains(why), "{template} says {said}");
    }
    let long = format!("/{}", "x".repeat(SOURCE_MAX));
    assert!(rendered(&long).unwrap_err().contains("allowed"));
}

#[test]
fn an_expression_is_empty_or_has_a_value() {
    let values = json!({ "response": { "body": { "id": 1, "of": "k", "no": false, "zero": 0, "text": "" } },
                         "call": { "key": "k" } });
    let value = |text: &str| evaluate(text, &values);
    assert_eq!(
        value("response.body if response.body.of == call.key"),
        Ok(Some(values["response"]["body"].clone()))
    );
    assert_eq!(
        value("response.body if response.body.of == 'other'"),
        Ok(None)
    );
    assert_eq!(value("response.body.missing"), Ok(None));
    assert_eq!(value("response.body.no"), Ok(None));
    assert_eq!(value("none"), Ok(None));
    assert_eq!(value("response.body.zero"), Ok(Some(json!(0))));
    assert_eq!(value("response.body.text"), Ok(Some(json!(""))));
    assert!(value("response.body.missing.deeper").is_err());
    assert!(value("response.nothing.at.all").is_err());
    for hostile in [
        "'x' * 100000000000",
        "('x' * 10000)|replace('x', 'x' * 10000)",
        "[1] * 1000000000",
        "range(1000000000)|list",
        "'%1000000000s'|format('x')",
        // Lazy: it costs no fuel, and is gigabytes as soon as it is written down.
        "[range(100000)] * 100000",
    ] {
        assert!(value(hostile).is_err(), "{hostile}");
    }
}

#[test]
fn what_is_not_there_is_told_before_use() {
    let names = ["response", "call"];
    assert_eq!(
        check_expression("response.body if call.key", &names),
        Ok(())
    );
    assert_eq!(check_expression("range(3)|first", &names), Ok(()));
    let said = |text| check_expression(text, &names).unwrap_err();
    assert!(said("respnse").contains("`respnse` is not known here"));
    assert!(said("response.").contains("does not compile"));
    assert!(said(&"1".repeat(SOURCE_MAX + 1)).contains("allowed"));
    let said = |text| check_path(text, &["call"]).unwrap_err();
    assert!(said("/{{ response.x }}").contains("`response` is not known here"));
    assert!(said("x").contains("one `/`"));
    assert!(said("{{ call.key }}").contains("one `/`"));
    assert!(said("{{ call.pathway }}").contains("one `/`"));
    assert_eq!(check_path("{{call.path }}/status", &["call"]), Ok(()));
}

#[test]
fn what_could_make_a_value_of_any_size_is_refused_before_it_runs() {
    for expression in [
        "'x' * 100000000",
        "([1] * 100000000)|length",
        "9 ** 9",
        "'xx'|replace('x', 'xxxxxxxx')",
        "['a', 'b'] | join('long')",
        "'%0999999999d' |format(1)",
        "'a\\'b' * 9",
        "[['a', 'b']]|map('join', 'x')|list",
    ] {
        let said = evaluate(expression, &json!({})).unwrap_err().to_string();
        assert!(
            said.contains("any size") || said.contains("unknown filter"),
            "{expression}: {said}"
        );
    }
    let often = ["'x'"; 20].join("~");
    assert!(evaluate(&often, &json!({})).is_err());
    for template in [
        "/{% set a = call.key ~ call.key %}{{ a }}",
        "/{%- set a = 1 -%}x",
        "/{% raw %}{{ ' {% endraw %}{{ [1] * 100000000 }}",
        "/{# {{ ' #}{{ [1] * 100000000 }}",
        "/{% for i in [1] * 100000000 %}{% endfor %}",
        "/{{ '}}' * 9 }}",
        "/{% macro a() %}{% endmacro %}",
    ] {
        let said = rendered(template).unwrap_err();
        assert!(said.contains("any size"), "{template}: {said}");
    }
    assert_eq!(
        evaluate("'a*b' ~ \"|join\"", &json!({})),
        Ok(Some(json!("a*b|join")))
    );
    assert_eq!(rendered("/a*b/{{ 'c' }}").as_deref(), Ok("/a*b/c"));
}
