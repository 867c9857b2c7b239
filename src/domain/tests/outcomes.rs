//! [`classify`] over every evidence and every status.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;

use crate::domain::{
    evidence::{Answer, Evidence, NotSent, Unanswered},
    outcome::{Class, Outcome, Retry, Rules, Trouble, classify},
};

const WAIT: Option<Duration> = Some(Duration::from_secs(7));

const CLASSES: [Class; 5] = [
    Class::Confirmed,
    Class::Retry,
    Class::InDoubt,
    Class::Exists,
    Class::Failed,
];

fn answered(status: u16, retry_after: Option<Duration>) -> Evidence {
    Evidence::Answered(Answer {
        status,
        headers: Vec::new(),
        retry_after,
        body: Bytes::new(),
        truncated: false,
    })
}

fn retry(spends: bool, not_before: Option<Duration>, trouble: Option<Trouble>) -> Outcome {
    Outcome::Retry(Retry {
        spends,
        not_before,
        trouble,
    })
}

/// The contract's table, written as lists instead of as code.
fn by_contract(status: u16, retry_after: Option<Duration>) -> Outcome {
    let spends_nothing = [401, 407, 429];
    let credential = [401, 407].contains(&status).then_some(Trouble::Credential);
    let not_executed =
        [401, 407, 425, 429].contains(&status) || (status == 503 && retry_after.is_some());
    if not_executed {
        return retry(!spends_nothing.contains(&status), retry_after, credential);
    }
    match status {
        200..=299 => Outcome::Confirmed,
        408 => Outcome::InDoubt,
        300..=499 => Outcome::Rejected,
        _ => Outcome::InDoubt,
    }
}

#[test]
fn every_status_has_the_class_of_the_contract() {
    let none = Rules::default();
    for status in 100..=999 {
        for retry_after in [None, WAIT] {
            let outcome = classify(&answered(status, retry_after), &none, None);
            assert_eq!(
                outcome,
                by_contract(status, retry_after),
                "{status} {retry_after:?}"
            );
        }
    }
}

#[test]
fn a_leaf_s_own_word_goes_before_the_table_for_every_status() {
    for status in 100..=999 {
        for retry_after in [None, WAIT] {
            for class in CLASSES {
                let rules = Rules {
                    outcome: BTreeMap::from([(status, class)]),
                    exists_on: Vec::new(),
                    verdict: None,
                };
                let expected = match class {
                    Class::Confirmed => Outcome::Confirmed,
                    Class::Exists => Outcome::Exists,
                    Class::InDoubt => Outcome::InDoubt,
                    Class::Failed => Outcome::Rejected,
                    Class::Retry => retry(status != 429, retry_after, None),
                };
                let evidence = answered(status, retry_after);
                assert_eq!(
                    classify(&evidence, &rules, None),
                    expected,
                    "{status} {class:?}"
                );
                assert_eq!(expected.class(), class);
                let other = answered(if status == 999 { 100 } else { status + 1 }, retry_after);
                assert_eq!(
                    classify(&other, &rules, None),
                    classify(&other, &Rules::default(), None),
                    "{status} says nothing about another status"
                );
            }
            let rules = Rules {
                outcome: BTreeMap::from([(status, Class::Confirmed)]),
                exists_on: vec![999, status],
                verdict: None,
            };
            let outcome = classify(&answered(status, retry_after), &rules, None);
            assert_eq!(outcome, Outcome::Exists, "exists_on goes before all");
        }
    }
}

#[test]
fn without_an_answer_nothing_but_the_proof_of_not_sent_is_no_doubt() {
    let text = || "connection reset".to_owned();
    let everything = Rules {
        outcome: (100..=999)
            .map(|status| (status, Class::Confirmed))
            .collect(),
        exists_on: (100..=999).collect(),
        verdict: None,
    };
    for rules in [Rules::default(), everything] {
        for (evidence, expected) in [
            (NotSent::Unsendable(text()), Outcome::Unsendable),
            (
                NotSent::Unconnected(text()),
                retry(false, None, Some(Trouble::Connection)),
            ),
            (NotSent::OutOfTime(text()), retry(false, None, None)),
            (NotSent::Refused(text()), retry(false, None, None)),
            (NotSent::LeaseOver, retry(false, None, None)),
        ] {
            assert_eq!(
                classify(&Evidence::NotSent(evidence), &rules, None),
                expected
            );
        }
        for status in [None, Some(200), Some(404), Some(503)] {
            let evidence = Evidence::Unanswered(Unanswered {
                error: text(),
                status,
            });
            assert_eq!(
                classify(&evidence, &rules, None),
                Outcome::InDoubt,
                "half an answer of {status:?} is none"
            );
        }
    }
}

#[test]
fn what_is_kept_of_an_answer_does_not_change_its_class() {
    for status in 100..=999 {
        let evidence = Evidence::Answered(Answer {
            status,
            headers: vec![("location".to_owned(), "/".to_owned())],
            retry_after: None,
            body: Bytes::from_static(b"\xff{"),
            truncated: true,
        });
        assert_eq!(
            classify(&evidence, &Rules::default(), None),
            by_contract(status, None)
        );
    }
}
