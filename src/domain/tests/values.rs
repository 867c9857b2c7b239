//! Delays, idempotency values, request hashes, and what a claimed call is to do.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use crate::domain::{
    call::{Claimed, Duty, Prior, UndoneBy},
    request::{IdempotencyFormat, Request, idempotency_header, idempotency_value},
    schedule::Schedule,
};

fn schedules() -> impl Strategy<Value = Schedule> {
    let year = 365 * 24 * 3600 * 1000_u64;
    (1..year, 1..year, 1.0..1e6_f64, 0.0..=1.0_f64).prop_map(
        |(initial, max, multiplier, jitter)| Schedule {
            initial: Duration::from_millis(initial),
            max: Duration::from_millis(max),
            multiplier,
            jitter,
        },
    )
}

proptest! {
    #[test]
    fn a_base_delay_never_decreases_and_never_exceeds_the_maximum(
        schedule in schedules(), failures in any::<u32>(), more in any::<u32>(),
    ) {
        let (base, later) = (schedule.base(failures), schedule.base(failures.saturating_add(more)));
        prop_assert!(base <= later && later <= schedule.max);
        // Seconds as floating point are rounded.
        let first = schedule.base(1).abs_diff(schedule.initial.min(schedule.max));
        prop_assert!(first < Duration::from_micros(1));
        prop_assert_eq!(schedule.base(0), schedule.base(1));
    }

    #[test]
    fn a_delay_stays_between_its_bounds(
        schedule in schedules(), failures in any::<u32>(), bound in proptest::option::of(0..10_000_000_000_u64),
    ) {
        let bound = bound.map(Duration::from_millis);
        let delay = schedule.delay(failures, bound);
        let least = bound.unwrap_or_default();
        let spread = least.mul_f64(1.0 + schedule.jitter) + Duration::from_millis(1);
        prop_assert!(least <= delay && delay <= schedule.max.max(spread));
        let base = schedule.base(failures).as_secs_f64();
        let jittered = (1.0 - schedule.jitter) * base;
        // Nanoseconds are rounded.
        prop_assert!(delay.as_secs_f64() >= jittered - 1e-6 * base.max(1.0), "{delay:?} {jittered}");
    }

    #[test]
    fn without_jitter_a_delay_is_exact(schedule in schedules(), failures in any::<u32>()) {
        let schedule = Schedule { jitter: 0.0, ..schedule };
        prop_assert_eq!(schedule.delay(failures, None), schedule.base(failures));
    }

    #[test]
    fn an_idempotency_header_is_visible_ascii_whatever_the_key(
        leaf in "[a-z0-9_-]{1,20}", key in "\\PC{1,200}|[\\x00-\\x7f]{1,40}", generation in any::<u32>(),
    ) {
        let value = idempotency_value(&leaf, &key, generation, 0);
        for format in [IdempotencyFormat::Raw, IdempotencyFormat::Quoted] {
            let header = idempotency_header(format, &value);
            prop_assert!(!header.is_empty() && header.bytes().all(|byte| (b'!'..=b'~').contains(&byte)), "{header:?}");
        }
        prop_assert_eq!(&idempotency_value(&leaf, &key, generation, 0), &value, "the same on each attempt");
    }

    #[test]
    fn different_effects_have_different_idempotency_values(
        key in "[ -~]{1,30}", other in "[ -~]{1,30}", generation in 0..4_u32, later in 0..4_u32,
    ) {
        // The first generation is 1; nobody makes a 0.
        let (generation, later) = (generation.max(1), later.max(1));
        prop_assume!((&key, generation) != (&other, later));
        prop_assert_ne!(idempotency_value("a", &key, generation, 0), idempotency_value("a", &other, later, 0));
        if generation > 1 || key.contains(' ') {
            prop_assert_ne!(idempotency_value("a", &key, generation, 0), idempotency_value("b", &key, generation, 0));
        }
    }
}

#[test]
fn the_longest_delays_do_not_overflow() {
    let longest = Schedule {
        initial: Duration::MAX,
        max: Duration::MAX,
        multiplier: f64::MAX,
        jitter: 1.0,
    };
    for failures in [0, 1, 2, 100, u32::MAX] {
        assert!(longest.delay(failures, Some(Duration::MAX)) <= Duration::MAX);
        assert!(longest.delay(failures, None) <= Duration::MAX);
    }
    let none = Schedule {
        initial: Duration::ZERO,
        max: Duration::ZERO,
        multiplier: 1.0,
        jitter: 0.0,
    };
    assert_eq!(none.delay(u32::MAX, None), Duration::ZERO);
}

#[test]
fn a_key_that_fits_into_a_header_is_its_own_idempotency_value_once() {
    assert_eq!(
        idempotency_value("git", "site:42:repo", 1, 0),
        "site:42:repo"
    );
    let again = idempotency_value("git", "site:42:repo", 2, 0);
    assert!(again.starts_with("lh-") && again.len() == 67, "{again}");
    // After a refusal that the leaf would give again.
    let mut all = vec![again];
    for (generation, refusals) in [(1, 1), (1, 2), (2, 1)] {
        let value = idempotency_value("git", "site:42:repo", generation, refusals);
        assert!(!all.contains(&value), "{generation}, {refusals}");
        all.push(value);
    }
    for unfit in ["a b", "ä", "a\nb", "\u{7f}", "", " "] {
        let value = idempotency_value("git", unfit, 1, 0);
        assert_eq!(value.is_empty(), unfit.is_empty(), "{unfit:?}: {value}");
        assert!(
            unfit.is_empty() || value.starts_with("lh-"),
            "{unfit:?}: {value}"
        );
    }
}

fn request() -> Request {
    Request {
        method: "POST".to_owned(),
        path: "/a".to_owned(),
        headers: Vec::new(),
        body: Some(Bytes::from_static(b"b")),
        content_type: None,
        idempotency: None,
        message_id: None,
        credential: None,
    }
}

#[test]
fn a_request_s_hash_tells_method_path_and_body_and_nothing_else() {
    let same = Request {
        headers: vec![("x".to_owned(), "y".to_owned())],
        content_type: Some("text/plain".to_owned()),
        idempotency: Some(("k".to_owned(), "v".to_owned())),
        message_id: None,
        credential: Some("acme".to_owned()),
        ..request()
    };
    assert_eq!(same.hash(), request().hash());
    let method = Request {
        method: "PUT".to_owned(),
        ..request()
    };
    let path = Request {
        path: "/ab".to_owned(),
        ..request()
    };
    let body = Request {
        body: Some(Bytes::from_static(b"bb")),
        ..request()
    };
    let none = Request {
        body: None,
        ..request()
    };
    let empty = Request {
        body: Some(Bytes::new()),
        ..request()
    };
    let all = [request(), method, path, body, none, empty].map(|request| request.hash());
    for (place, hash) in all.iter().enumerate() {
        assert!(!all[..place].contains(hash), "{place}");
    }
}

fn claimed(request: Result<Request, String>, prior: Option<Prior>) -> Claimed {
    Claimed {
        id: 1,
        round: 1,
        leaf: "git".to_owned(),
        key: "k".to_owned(),
        ordering_key: None,
        attempt: 1,
        spent: 0,
        in_doubt: false,
        waited: Duration::ZERO,
        request,
        body_is_apart: false,
        max_attempts: None,
        timeout: None,
        has_probe: false,
        compensates: false,
        since_alive: None,
        batch: None,
        trace: None,
        prior,
        generation: 1,
    }
}

#[test]
fn what_stands_for_an_effect_decides_before_anything_is_sent() {
    let prior = |hash: Option<Vec<u8>>| {
        Some(Prior {
            generation: 3,
            request_hash: hash,
            being_undone: None,
        })
    };
    let ours = || Some(request().hash().to_vec());
    let theirs = || Some(vec![0; 32]);
    let flaw = || Err("headers: broken".to_owned());
    for (request, prior, duty) in [
        (Ok(request()), None, Duty::Send),
        (flaw(), None, Duty::Unsendable),
        (Ok(request()), prior(None), Duty::Confirmed(3)),
        (Ok(request()), prior(ours()), Duty::Confirmed(3)),
        (Ok(request()), prior(theirs()), Duty::KeyConflict),
        (Ok(request()), prior(Some(Vec::new())), Duty::KeyConflict),
        // Whatever it would have been, its effect is there.
        (flaw(), prior(None), Duty::Confirmed(3)),
        (flaw(), prior(theirs()), Duty::Confirmed(3)),
    ] {
        let call = claimed(request, prior);
        assert_eq!(call.duty(None, true), duty, "{call:?}");
    }
    for (by, leaf_undoes, duty) in [
        (UndoneBy::Row, false, Duty::BeingUndone),
        (UndoneBy::Leaf, true, Duty::BeingUndone),
        (UndoneBy::Leaf, false, Duty::Confirmed(3)),
    ] {
        let mut prior = prior(None);
        prior.as_mut().unwrap().being_undone = Some(by);
        let mut call = claimed(Ok(request()), prior);
        assert_eq!(call.duty(None, leaf_undoes), duty);
        // Its own request may have made what stands.
        call.in_doubt = true;
        assert_eq!(call.duty(None, leaf_undoes), Duty::Confirmed(3));
    }
}

#[test]
fn the_next_generation_waits_until_nothing_of_the_one_before_can_arrive() {
    let settle = Some(Duration::from_secs(30));
    let wait = |seconds| Duty::Wait(Duration::from_secs(seconds));
    for (since, settle, in_doubt, duty) in [
        (None, settle, false, Duty::Send),
        (Some(30.0), settle, false, Duty::Send),
        (Some(10.0), settle, false, wait(20)),
        (Some(-5.0), settle, false, wait(35)),
        // The leaf has seen the key of what is late.
        (Some(-5.0), None, false, Duty::Send),
        // It was sent already.
        (Some(10.0), settle, true, Duty::Send),
    ] {
        let call = Claimed {
            since_alive: since,
            in_doubt,
            ..claimed(Ok(request()), None)
        };
        assert_eq!(call.duty(settle, false), duty, "{since:?}");
    }
}
