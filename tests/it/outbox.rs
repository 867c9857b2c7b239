//! The outbox: a malformed row is refused by a constraint whose name says what is wrong, and every other row
//! arrives at the leaf exactly as it was written.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use tokio_postgres::error::SqlState;

use crate::harness::{
    Bed,
    app::{call, keyed, literal},
    wait::{holds_for, until},
};

/// Columns, their SQL values, and the constraint that refuses them; leaf and path are added where they are
/// not among the columns.
const MALFORMED: &str = r#"
leaf :: '' :: leaf_is_1_to_100_characters
leaf :: repeat('x', 101) :: leaf_is_1_to_100_characters
key :: '' :: key_is_1_to_200_characters
key :: repeat('ä', 201) :: key_is_1_to_200_characters
key :: 'k:undo:1' :: key_does_not_end_in_undo_and_digits
key :: ':undo:007' :: key_does_not_end_in_undo_and_digits
undoes :: 1 :: key_does_not_end_in_undo_and_digits
method :: 'post' :: method_is_get_head_post_put_patch_or_delete
method :: 'OPTIONS' :: method_is_get_head_post_put_patch_or_delete
method :: '' :: method_is_get_head_post_put_patch_or_delete
path :: 'things' :: path_starts_with_exactly_one_slash
path :: '//host/things' :: path_starts_with_exactly_one_slash
path :: 'http://host/' :: path_starts_with_exactly_one_slash
path :: '?a=b' :: path_starts_with_exactly_one_slash
path :: '/a b' :: path_is_visible_ascii_without_backslash_or_fragment
path :: '/a#b' :: path_is_visible_ascii_without_backslash_or_fragment
path :: '/a?b#c' :: path_is_visible_ascii_without_backslash_or_fragment
path :: '/a\b' :: path_is_visible_ascii_without_backslash_or_fragment
path :: '/ä' :: path_is_visible_ascii_without_backslash_or_fragment
path :: E'/a\n' :: path_is_visible_ascii_without_backslash_or_fragment
path :: E'/a\r\nHost: x' :: path_is_visible_ascii_without_backslash_or_fragment
path :: E'/\x7f' :: path_is_visible_ascii_without_backslash_or_fragment
path :: '/..' :: path_has_no_dot_segment_in_any_encoding
path :: '/.' :: path_has_no_dot_segment_in_any_encoding
path :: '/a/../b' :: path_has_no_dot_segment_in_any_encoding
path :: '/a/./b?c' :: path_has_no_dot_segment_in_any_encoding
path :: '/%2e%2E/b' :: path_has_no_dot_segment_in_any_encoding
path :: '/.%2e?a' :: path_has_no_dot_segment_in_any_encoding
path :: '/a%2f..%2Fb' :: path_has_no_dot_segment_in_any_encoding
path :: '/a%5c..%5cb' :: path_has_no_dot_segment_in_any_encoding
path :: '/a/%252e%252e/b' :: path_has_no_dot_segment_in_any_encoding
path :: '/a%25252f%25252e/b' :: path_has_no_dot_segment_in_any_encoding
path :: '/a{b}' :: path_has_no_character_that_a_url_must_escape
path :: '/a?b="c"' :: path_has_no_character_that_a_url_must_escape
path :: '/%' :: path_percent_signs_are_escapes
path :: '/%2' :: path_percent_signs_are_escapes
path :: '/%zz' :: path_percent_signs_are_escapes
path :: '/a?b=%2' :: path_percent_signs_are_escapes
path :: '/' || repeat('a', 8000) :: path_is_at_most_8000_characters
headers :: '[]' :: headers_are_an_object_of_strings
headers :: '"x"' :: headers_are_an_object_of_strings
headers :: 'null' :: headers_are_an_object_of_strings
headers :: '{"x-a": 1}' :: headers_are_an_object_of_strings
headers :: '{"x-a": null}' :: headers_are_an_object_of_strings
headers :: '{"x-a": ["b"]}' :: headers_are_an_object_of_strings
headers :: '{"x a": "b"}' :: header_names_are_http_tokens
headers :: '{"": "b"}' :: header_names_are_http_tokens
headers :: '{"x:a": "b"}' :: header_names_are_http_tokens
headers :: '{"ä": "b"}' :: header_names_are_http_tokens
headers :: '{"x-a\n": "b"}' :: header_names_are_http_tokens
headers :: '{"X-A": "1", "x-a": "2"}' :: header_names_are_unique_in_any_case
headers :: '{"x-a": " b"}' :: header_values_are_visible_ascii
headers :: '{"x-a": "b "}' :: header_values_are_visible_ascii
headers :: '{"x-a": "b\tc"}' :: header_values_are_visible_ascii
headers :: '{"x-a": "b\r\nx-b: c"}' :: header_values_are_visible_ascii
headers :: '{"x-a": "b\n"}' :: header_values_are_visible_ascii
headers :: '{"x-a": "ä"}' :: header_values_are_visible_ascii
headers :: '{"Host": "x"}' :: headers_do_not_frame_or_route
headers :: '{"content-LENGTH": "1"}' :: headers_do_not_frame_or_route
headers :: '{"Transfer-Encoding": "chunked"}' :: headers_do_not_frame_or_route
headers :: '{"connection": "close"}' :: headers_do_not_frame_or_route
headers :: '{"keep-alive": "x"}' :: headers_do_not_frame_or_route
headers :: '{"proxy-connection": "x"}' :: headers_do_not_frame_or_route
headers :: '{"proxy-authorization": "x"}' :: headers_do_not_frame_or_route
headers :: '{"proxy-authenticate": "x"}' :: headers_do_not_frame_or_route
headers :: '{"te": "x"}' :: headers_do_not_frame_or_route
headers :: '{"trailer": "x"}' :: headers_do_not_frame_or_route
headers :: '{"upgrade": "x"}' :: headers_do_not_frame_or_route
headers :: '{"expect": "100-continue"}' :: headers_do_not_frame_or_route
headers :: '{"Content-Type": "x/y"}' :: content_type_is_not_among_the_headers
body, body_raw, content_type :: '1', 'a', 'x/y' :: only_one_of_body_and_body_raw
body_raw :: 'a' :: content_type_goes_with_body_raw_and_only_with_it
body, content_type :: '1', 'x/y' :: content_type_goes_with_body_raw_and_only_with_it
content_type :: 'x/y' :: content_type_goes_with_body_raw_and_only_with_it
body_raw, content_type :: 'a', '' :: content_type_is_visible_ascii
body_raw, content_type :: 'a', ' x/y' :: content_type_is_visible_ascii
body_raw, content_type :: 'a', E'x/y\nz: 1' :: content_type_is_visible_ascii
body_raw, content_type :: 'a', 'x/ä' :: content_type_is_visible_ascii
body_raw, content_type :: 'a', repeat('x', 201) :: content_type_is_visible_ascii
run_when :: 'later' :: run_when_is_ready_or_a_batch_phase
run_when :: 'batch_failed' :: run_when_other_than_ready_needs_a_batch
ordering_key :: '' :: ordering_key_is_1_to_200_characters
ordering_key :: repeat('x', 201) :: ordering_key_is_1_to_200_characters
max_attempts :: 0 :: max_attempts_is_at_least_1
timeout :: '0' :: timeout_is_above_zero_and_at_most_a_day
timeout :: '-1 s' :: timeout_is_above_zero_and_at_most_a_day
timeout :: '1 day 1 ms' :: timeout_is_above_zero_and_at_most_a_day
timeout :: '1 month' :: timeout_is_above_zero_and_at_most_a_day
credential :: '' :: credential_is_1_to_200_characters
credential :: repeat('x', 201) :: credential_is_1_to_200_characters
probe :: 'null' :: probe_is_an_object_with_a_path
probe :: '[]' :: probe_is_an_object_with_a_path
probe :: '{}' :: probe_is_an_object_with_a_path
probe :: '{"path": 1}' :: probe_is_an_object_with_a_path
probe :: '{"path": "x"}' :: probe_is_an_object_with_a_path
probe :: '{"path": "/x", "method": "POST"}' :: probe_is_an_object_with_a_path
probe :: '{"path": "/x", "fuond": "y"}' :: probe_is_an_object_with_a_path
compensate :: 'null' :: compensate_is_an_object_with_method_and_path
compensate :: '{"path": "/x"}' :: compensate_is_an_object_with_method_and_path
compensate :: '{"method": "DELETE"}' :: compensate_is_an_object_with_method_and_path
compensate :: '{"method": "undo", "path": "/x"}' :: compensate_is_an_object_with_method_and_path
compensate :: '{"method": "PUT", "path": "x"}' :: compensate_is_an_object_with_method_and_path
compensate :: '{"method": "PUT", "path": "/", "x": 1}' :: compensate_is_an_object_with_method_and_path
meta :: '[]' :: meta_is_an_object
meta :: 'null' :: meta_is_an_object
"#;

/// The columns of each row of a table such as that one.
pub(crate) fn table<const N: usize>(text: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| {
        let cells: Vec<_> = line.split(" :: ").collect();
        cells.try_into().unwrap()
    })
}

/// The constraint that this is a violation of, where it looks as PostgreSQL's own does.
fn rule(error: &tokio_postgres::Error) -> String {
    let of_the_outbox = error.as_db_error().filter(|error| {
        *error.code() == SqlState::CHECK_VIOLATION
            && error.schema() == Some("leafhopper")
            && error.table() == Some("outbox")
    });
    let name = of_the_outbox.and_then(|error| {
        let name = error.constraint()?;
        let message =
            format!("new row for relation \"outbox\" violates check constraint \"{name}\"");
        (error.message() == message).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("{error:?}"))
}

#[tokio::test]
async fn a_malformed_row_is_refused_by_the_constraint_that_says_why() {
    let bed = Bed::new().await;
    let mut wrong = Vec::new();
    for [columns, values, constraint] in table(MALFORMED) {
        let refused = bed.app.try_insert(columns, values).await;
        let seen = refused.map_or_else(|error| rule(&error), |_| "was taken".to_owned());
        if seen != constraint {
            wrong.push(format!(
                "({columns}) = ({values}): {seen}, expected {constraint}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // The table above misses none.
    let all = bed
        .app
        .rows(
            "SELECT (regexp_matches(prosrc, 'THEN ''(\\w+)''', 'g'))[1] AS name FROM pg_proc \
              WHERE oid = 'leafhopper.is_well_formed'::regproc",
        )
        .await;
    let all: BTreeSet<&str> = all
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    let tested: BTreeSet<&str> = table(MALFORMED)
        .map(|[_, _, constraint]| constraint)
        .collect();
    assert_eq!(all, tested);
}

#[tokio::test]
async fn a_malformed_row_is_refused_also_where_no_trigger_fires() {
    let bed = Bed::new().await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app
        .execute("SET session_replication_role = replica")
        .await;
    let refused = bed.app.try_insert("path", "'//host/'").await.unwrap_err();
    assert_eq!(rule(&refused), "path_starts_with_exactly_one_slash");
    let update = format!("UPDATE leafhopper.outbox SET key = '' WHERE id = {id}");
    let refused = bed.app.client().batch_execute(&update).await;
    assert_eq!(rule(&refused.unwrap_err()), "key_is_1_to_200_characters");
}

#[tokio::test]
async fn what_must_be_said_must_be_said() {
    let bed = Bed::new().await;
    for column in [
        "leaf",
        "key",
        "method",
        "path",
        "headers",
        "run_when",
        "priority",
        "meta",
        "created_at",
    ] {
        let refused = bed.app.try_insert(column, "NULL").await;
        let refused = refused.expect_err(column);
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.column(), Some(column));
    }
}

#[tokio::test]
async fn a_time_is_a_time_in_every_zone() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    for zone in [
        "Asia/Kathmandu",
        "America/St_Johns",
        "Pacific/Kiritimati",
        "UTC",
    ] {
        bed.app
            .execute(&format!("SET TimeZone = {}", literal(zone)))
            .await;
        for (key, columns, values) in [
            ("now", "not_before", "now()"),
            ("local", "not_before", "localtimestamp"),
            ("dst", "not_before", "'2024-03-31 02:30:00'"),
            ("open", "deadline", "localtimestamp + interval '1 hour'"),
        ] {
            let key = format!("{key} in {zone}");
            let columns = format!("{columns}, key");
            let id = bed
                .app
                .insert_values(&columns, &format!("{values}, {}", literal(&key)))
                .await;
            bed.app.until_state(id, "confirmed").await;
        }
        let past = bed.app.insert_values("deadline", "localtimestamp").await;
        bed.app.until_state(past, "expired").await;
    }
}

#[tokio::test]
async fn a_call_is_not_sent_before_its_time() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let far = bed
        .app
        .insert_values("not_before", "now() + interval '1 hour'")
        .await;
    let never = bed.app.insert_values("not_before", "'infinity'").await;
    let ended = bed
        .app
        .insert_values(
            "not_before, deadline",
            "'infinity', now() + interval '300 ms'",
        )
        .await;
    let soon = bed
        .app
        .insert_values("not_before", "now() + interval '700 ms'")
        .await;
    bed.app.until_state(ended, "expired").await;
    bed.app.until_state(soon, "confirmed").await;
    let order = "SELECT confirmed_at >= not_before AS late_enough, \
                        confirmed_at < not_before + interval '10 s' AS soon_enough \
                   FROM leafhopper.result JOIN leafhopper.outbox ON outbox.id = call_id";
    assert_eq!(
        bed.app.rows(order).await,
        [json!({"late_enough": true, "soon_enough": true})]
    );
    assert_eq!(bed.leaf.all_requests().len(), 1);
    for (id, at) in [(far, None), (never, Some("infinity"))] {
        let row = bed.app.call(id).await;
        assert_eq!(row["state"], "pending");
        assert_eq!(row["stuck"], false);
        if let Some(at) = at {
            assert_eq!(row["next_attempt_at"], at);
        }
    }
}

#[tokio::test]
async fn an_infinite_time_disturbs_nothing_else() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    bed.app.insert_values("not_before", "'infinity'").await;
    let at_once = bed.app.insert_values("deadline", "'-infinity'").await;
    bed.app.until_state(at_once, "expired").await;
    let id = bed.app.insert(keyed("leaf", "k")).await;
    bed.app.until_state(id, "confirmed").await;
    // The gauges count what never comes due, and go on.
    until("the gauge shows the waiting call", async || {
        let pending = sidecar
            .metric("leafhopper_calls", &["leaf=\"leaf\"", "state=\"pending\""])
            .await;
        if (pending - 1.0).abs() < f64::EPSILON {
            Ok(())
        } else {
            Err(pending)
        }
    })
    .await;
    assert_eq!(bed.leaf.all_requests().len(), 1);
}

#[tokio::test]
async fn ids_go_on_above_two_to_the_31st() {
    let bed = Bed::new().await;
    bed.app
        .execute(
            "ALTER SEQUENCE leafhopper.outbox_id_seq RESTART WITH 2147483647; \
             ALTER SEQUENCE leafhopper.result_seq_seq RESTART WITH 2147483647; \
             ALTER SEQUENCE leafhopper.attempt_id_seq RESTART WITH 2147483647",
        )
        .await;
    let _sidecar = bed.sidecar("").await;
    bed.leaf.on("/refused").refuses(404);
    for n in 0..4 {
        let id = bed.app.insert(keyed("leaf", &format!("k{n}"))).await;
        bed.app.until_state(id, "confirmed").await;
        let refused = bed.app.insert(call("leaf").path("/refused")).await;
        bed.app.until_state(refused, "failed").await;
        assert!(refused > i64::from(i32::MAX), "{refused}");
    }
}

#[tokio::test]
async fn an_unknown_leaf_makes_a_call_wait_visibly() {
    let bed = Bed::new().await;
    let _sidecar = bed.sidecar("").await;
    let id = bed.app.insert(keyed("nobody", "k")).await;
    let known = bed.app.insert(keyed("leaf", "l")).await;
    bed.app.until_state(known, "confirmed").await;
    holds_for(Duration::from_millis(200), "it waits", async || {
        let row = bed.app.call(id).await;
        let is_right =
            row["state"] == "pending" && row["reason"] == "leaf_unknown" && row["stuck"] == true;
        if is_right { Ok(()) } else { Err(row) }
    })
    .await;
}
