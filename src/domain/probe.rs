//! Asking the leaf: what a probe's answer means, and what follows for the call that was in doubt.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    decision::ParkReason,
    evidence::{Answer, Evidence, NotSent},
    template,
};

/// What a probe found out.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The effect is there.
    Found {
        /// What becomes the confirmation's body.
        body: Body,
        /// Nothing told it from somebody else's.
        weak: bool,
    },
    /// The leaf has no such thing.
    Absent,
    /// The leaf has a thing there, and it is not ours.
    Unmatched,
    /// The answer says neither.
    Unclear {
        /// Why, for people.
        why: String,
        /// The leaf answered: it counts against `max_probes`.
        counts: bool,
        /// The answer's `Retry-After`.
        not_before: Option<Duration>,
    },
    /// No request can be made of the probe; says why.
    Unaskable(String),
}

impl Verdict {
    /// The word for it in metrics, logs and traces.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Found { .. } => "found",
            Self::Absent | Self::Unmatched => "absent",
            Self::Unclear { .. } | Self::Unaskable(_) => "unclear",
        }
    }

    /// Whether the leaf has said what it was asked.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        !matches!(self, Self::Unclear { .. } | Self::Unaskable(_))
    }
}

/// The body of an adopted confirmation.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// There is none: what was asked about is gone.
    None,
    /// The answer's, as it came.
    Whole,
    /// What the expression made of it.
    Value(Value),
}

/// What a probe's answer means. `call` is what expressions see of the call.
#[must_use]
pub fn judge(evidence: &Evidence, found: Option<&str>, call: &Value) -> Verdict {
    let unclear = |why: &str, counts| Verdict::Unclear {
        why: why.to_owned(),
        counts,
        not_before: None,
    };
    let answer = match evidence {
        Evidence::NotSent(NotSent::Unsendable(why)) => return Verdict::Unaskable(why.clone()),
        Evidence::NotSent(
            NotSent::Unconnected(why) | NotSent::OutOfTime(why) | NotSent::Refused(why),
        ) => return unclear(why, false),
        Evidence::NotSent(NotSent::LeaseOver) => {
            return unclear("the instance's lease was over", false);
        }
        Evidence::Unanswered(unanswered) => return unclear(&unanswered.error, true),
        Evidence::Answered(answer) => answer,
    };
    match (answer.status, found) {
        (404 | 410, _) => Verdict::Absent,
        (200..=299, None) => Verdict::Found {
            body: Body::Whole,
            weak: true,
        },
        (200..=299, Some(_)) if answer.truncated => {
            unclear("the answer is longer than max_response_bytes", true)
        }
        (200..=299, Some(expression)) => {
            let values = json!({ "response": response(answer), "call": call });
            match template::evaluate(expression, &values) {
                Ok(None) => Verdict::Unmatched,
                Ok(Some(Value::Bool(true))) => Verdict::Found {
                    body: Body::Whole,
                    weak: false,
                },
                // As it came: in another hand, its longest numbers would be others.
                Ok(Some(value)) if Some(&value) == values["response"].get("body") => {
                    Verdict::Found {
                        body: Body::Whole,
                        weak: false,
                    }
                }
                Ok(Some(value)) => Verdict::Found {
                    body: Body::Value(value),
                    weak: false,
                },
                Err(flaw) => unclear(&format!("`found`: {flaw}"), true),
            }
        }
        (status, _) => Verdict::Unclear {
            why: format!("the leaf answered {status}"),
            // What only asks to wait says nothing.
            counts: !(status == 429
                || status == 401
                || status == 407
                || answer.retry_after.is_some()),
            not_before: answer.retry_after,
        },
    }
}

/// What expressions see of an answer: a body that is no JSON is not there.
#[must_use]
pub fn response(answer: &Answer) -> Value {
    let headers: serde_json::Map<String, Value> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into()))
        .collect();
    let mut response = json!({
        "status": answer.status,
        "headers": headers,
        "text": String::from_utf8_lossy(&answer.body),
    });
    if let Ok(body) = serde_json::from_slice::<Value>(&answer.body) {
        response["body"] = body;
    }
    response
}

/// A call in doubt that was asked about.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The leaf had said that the effect exists (`exists_on`).
    pub exists: bool,
    /// It said so to the call's first attempt: nothing of the call's own can be there.
    pub first: bool,
    /// How long after the probe's start an absence is believed; zero where it is.
    pub until_settled: Duration,
    /// Answers of the leaf that were unclear, this one included.
    pub unclear: u32,
    /// So many of them park the call.
    pub max_probes: u32,
    /// Sending the call twice does what sending it once does.
    pub repeatable: bool,
}

/// What follows for the call.
#[derive(Debug, Clone, PartialEq)]
pub enum AfterProbe {
    /// The effect is the call's: final.
    Adopt {
        /// The confirmation's body.
        body: Body,
        /// Nothing told it from somebody else's.
        weak: bool,
    },
    /// It was not executed: it may be sent, or ends where it may not any more.
    NotExecuted,
    /// To be asked again after this time.
    Again(Duration),
    /// To be asked again with backoff.
    Backoff {
        /// The answer counted against `max_probes`.
        counts: bool,
        /// The leaf's `Retry-After`.
        not_before: Option<Duration>,
    },
    /// A person has to say.
    Park(ParkReason),
    /// The leaf refused the call for something that is not there.
    Rejected,
}

/// Decides on a probe's verdict about what a compensation undoes: what is not there is undone.
///
/// The leaf may have answered by a sight that is older than the effect, so an absence has to settle here, too.
#[must_use]
pub fn after_undo(verdict: &Verdict, asked: &Asked) -> AfterProbe {
    match verdict {
        Verdict::Absent | Verdict::Unmatched | Verdict::Found { .. }
            if asked.until_settled > Duration::ZERO =>
        {
            AfterProbe::Again(asked.until_settled)
        }
        Verdict::Absent | Verdict::Unmatched => AfterProbe::Adopt {
            body: Body::None,
            weak: false,
        },
        // What is refunded can still be there to be seen: without an expression, that says nothing.
        Verdict::Found { weak: true, .. } if !asked.repeatable => {
            AfterProbe::Park(ParkReason::ProbeUnclear)
        }
        Verdict::Found { .. } => AfterProbe::NotExecuted,
        Verdict::Unclear { .. } | Verdict::Unaskable(_) => after(verdict, asked),
    }
}

/// Decides on a probe's verdict.
#[must_use]
pub fn after(verdict: &Verdict, asked: &Asked) -> AfterProbe {
    match verdict {
        Verdict::Found { body, weak } => AfterProbe::Adopt {
            body: body.clone(),
            weak: *weak,
        },
        Verdict::Unmatched if asked.exists => AfterProbe::Park(ParkReason::ExistsUnmatched),
        // A refusal of the first attempt is a no. After others, what exists may be their late effect.
        Verdict::Absent if asked.exists && asked.first => AfterProbe::Rejected,
        Verdict::Absent | Verdict::Unmatched if asked.until_settled > Duration::ZERO => {
            AfterProbe::Again(asked.until_settled)
        }
        Verdict::Absent if asked.exists => AfterProbe::Rejected,
        Verdict::Absent | Verdict::Unmatched => AfterProbe::NotExecuted,
        Verdict::Unclear { counts: true, .. } if asked.unclear >= asked.max_probes => {
            AfterProbe::Park(ParkReason::ProbeUnclear)
        }
        Verdict::Unclear {
            counts, not_before, ..
        } => AfterProbe::Backoff {
            counts: *counts,
            not_before: *not_before,
        },
        Verdict::Unaskable(_) => AfterProbe::Park(ParkReason::Template),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::domain::evidence::Unanswered;

    fn answered(status: u16, body: &'static str) -> Evidence {
        Evidence::Answered(Answer {
            status,
            headers: vec![("etag".into(), "7".into())],
            retry_after: None,
            body: Bytes::from_static(body.as_bytes()),
            truncated: false,
        })
    }

    fn asked() -> Asked {
        Asked {
            exists: false,
            first: true,
            until_settled: Duration::ZERO,
            unclear: 1,
            max_probes: 3,
            repeatable: false,
        }
    }

    #[test]
    fn without_an_expression_the_status_decides_and_the_adoption_is_weak() {
        let call = json!({ "key": "k" });
        for status in 100..=999 {
            let verdict = judge(&answered(status, "{}"), None, &call);
            match status {
                200..=299 => assert_eq!(
                    verdict,
                    Verdict::Found {
                        body: Body::Whole,
                        weak: true
                    }
                ),
                404 | 410 => assert_eq!(verdict, Verdict::Absent),
                _ => assert!(matches!(verdict, Verdict::Unclear { .. }), "{status}"),
            }
        }
    }

    #[test]
    fn an_expression_tells_ours_from_somebody_elses() {
        let call = json!({ "key": "k" });
        let found = Some("response.body if response.body.of == call.key");
        let verdict = |body| judge(&answered(200, body), found, &call);
        assert_eq!(
            verdict(r#"{"of": "k"}"#),
            Verdict::Found {
                body: Body::Whole,
                weak: false
            }
        );
        assert_eq!(
            judge(
                &answered(200, r#"{"a": [1, 2]}"#),
                Some("response.body.a"),
                &call
            ),
            Verdict::Found {
                body: Body::Value(json!([1, 2])),
                weak: false
            }
        );
        assert_eq!(verdict(r#"{"of": "other"}"#), Verdict::Unmatched);
        assert_eq!(verdict(r#"{"of": null}"#), Verdict::Unmatched);
        // A leaf that changed its answers must not make an effect look absent.
        assert!(matches!(
            verdict("{}"),
            Verdict::Unclear { counts: true, .. }
        ));
        assert!(matches!(
            verdict("no JSON"),
            Verdict::Unclear { counts: true, .. }
        ));
        assert_eq!(
            judge(&answered(200, "x"), Some("true"), &call),
            Verdict::Found {
                body: Body::Whole,
                weak: false
            }
        );
    }

    #[test]
    fn a_cut_answer_is_never_an_absence() {
        let Evidence::Answered(mut answer) = answered(200, "[]") else {
            unreachable!()
        };
        answer.truncated = true;
        let verdict = judge(
            &Evidence::Answered(answer),
            Some("response.body[0]"),
            &json!({}),
        );
        assert!(matches!(verdict, Verdict::Unclear { .. }));
    }

    #[test]
    fn a_leaf_that_is_not_reached_parks_nothing() {
        let evidence = Evidence::NotSent(NotSent::Unconnected("refused".into()));
        let verdict = judge(&evidence, None, &json!({}));
        let often = Asked {
            unclear: 99,
            ..asked()
        };
        let uncounted = AfterProbe::Backoff {
            counts: false,
            not_before: None,
        };
        assert_eq!(after(&verdict, &often), uncounted);
        let evidence = Evidence::Unanswered(Unanswered {
            error: "timeout".into(),
            status: None,
        });
        let verdict = judge(&evidence, None, &json!({}));
        assert_eq!(
            after(&verdict, &often),
            AfterProbe::Park(ParkReason::ProbeUnclear)
        );
        let counted = AfterProbe::Backoff {
            counts: true,
            not_before: None,
        };
        assert_eq!(after(&verdict, &asked()), counted);
        let unsendable = Evidence::NotSent(NotSent::Unsendable("too long".into()));
        assert_eq!(
            after(&judge(&unsendable, None, &json!({})), &asked()),
            AfterProbe::Park(ParkReason::Template)
        );
    }

    #[test]
    fn what_is_still_there_is_undone_again_where_that_is_sure_or_does_no_harm() {
        let found = |weak| Verdict::Found {
            body: Body::Whole,
            weak,
        };
        let repeatable = Asked {
            repeatable: true,
            ..asked()
        };
        let park = AfterProbe::Park(ParkReason::ProbeUnclear);
        assert_eq!(after_undo(&found(true), &asked()), park);
        assert_eq!(after_undo(&found(false), &asked()), AfterProbe::NotExecuted);
        assert_eq!(
            after_undo(&found(true), &repeatable),
            AfterProbe::NotExecuted
        );
        // Neither answer counts before the attempt has settled.
        let wait = Duration::from_secs(7);
        let early = Asked {
            until_settled: wait,
            ..asked()
        };
        for verdict in [found(true), found(false), Verdict::Absent] {
            assert_eq!(after_undo(&verdict, &early), AfterProbe::Again(wait));
        }
    }

    #[test]
    fn an_absence_is_believed_only_when_the_attempt_has_settled() {
        let wait = Duration::from_secs(7);
        let early = Asked {
            until_settled: wait,
            ..asked()
        };
        for verdict in [Verdict::Absent, Verdict::Unmatched] {
            assert_eq!(after(&verdict, &early), AfterProbe::Again(wait));
            assert_eq!(after(&verdict, &asked()), AfterProbe::NotExecuted);
        }
        let said = Asked {
            exists: true,
            ..asked()
        };
        assert_eq!(after(&Verdict::Absent, &said), AfterProbe::Rejected);
        // What the leaf spoke of may be an earlier attempt's effect, not yet to be seen.
        let later = Asked {
            first: false,
            until_settled: wait,
            ..said
        };
        assert_eq!(after(&Verdict::Absent, &later), AfterProbe::Again(wait));
        let settled = Asked {
            until_settled: Duration::ZERO,
            ..later
        };
        assert_eq!(after(&Verdict::Absent, &settled), AfterProbe::Rejected);
        assert_eq!(
            after(&Verdict::Unmatched, &said),
            AfterProbe::Park(ParkReason::ExistsUnmatched)
        );
    }
}
