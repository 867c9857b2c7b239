//! What the evidence means: [`classify`], pure and total.
//!
//! The table of the contract, section 3. Unknown means in doubt; "certainly not executed" is an
//! allow-list. A leaf's own `outcome` mapping goes before the table, `exists_on` before that, and what its
//! `verdict` says before all.

use std::{collections::BTreeMap, time::Duration};

use super::{
    evidence::{Evidence, NotSent},
    probe, template,
};

/// The classes that a configuration may map a status to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The leaf says that the effect exists.
    Confirmed,
    /// Certainly not executed; to be tried again.
    Retry,
    /// May have been executed.
    InDoubt,
    /// The leaf says that the effect exists already: to be asked for by a probe.
    Exists,
    /// The leaf said no.
    Failed,
}

impl Class {
    /// The word for it in the database, in metrics and in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Retry => "retry",
            Self::InDoubt => "in_doubt",
            Self::Exists => "exists",
            Self::Failed => "failed",
        }
    }
}

/// What one leaf's answers mean where they differ from the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// `[leaf.NAME.outcome]`: status → class.
    pub outcome: BTreeMap<u16, Class>,
    /// `exists_on`: the statuses by which the leaf says that the effect exists already.
    pub exists_on: Vec<u16>,
    /// `verdict`: an expression over `response` that gives a class, for leaves that answer 200 with an error
    /// inside. One that comes out empty leaves it to the table.
    pub verdict: Option<String>,
}

impl Rules {
    /// What the leaf's `verdict` says of an answer; nothing where there is none, or it came out empty.
    ///
    /// # Errors
    /// It can't be evaluated over this answer (no JSON, a part that is not there), or gives no class.
    pub fn verdict(&self, evidence: &Evidence) -> Result<Option<Class>, String> {
        let (Some(expression), Evidence::Answered(answer)) = (&self.verdict, evidence) else {
            return Ok(None);
        };
        let values = serde_json::json!({ "response": probe::response(answer) });
        match template::evaluate(expression, &values) {
            Ok(None) => Ok(None),
            // The value may be a piece of the body, which is shown nowhere.
            Ok(Some(value)) => serde_json::from_value(value).map(Some).map_err(|_not_one| {
                "verdict: its value is none of confirmed, retry, in_doubt, exists, failed"
                    .to_owned()
            }),
            Err(flaw) => Err(format!("verdict: {flaw}")),
        }
    }
}

/// The judgement on one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The leaf said that the effect exists.
    Confirmed,
    /// The leaf said that the effect exists already, without showing it.
    Exists,
    /// Certainly not executed.
    Retry(Retry),
    /// May have been executed.
    InDoubt,
    /// The leaf said no.
    Rejected,
    /// The row can't be sent, whatever is tried.
    Unsendable,
}

/// How a certainly unexecuted attempt is to be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Whether it counts against `max_attempts`: only what the leaf answered does, and not 429, 401, 407.
    pub spends: bool,
    /// A lower bound to the delay, from the leaf's `Retry-After`.
    pub not_before: Option<Duration>,
    /// What it tells the breaker.
    pub trouble: Option<Trouble>,
}

/// What an attempt tells about the leaf as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// 401 or 407: the credential is not accepted.
    Credential,
    /// No connection came about.
    Connection,
}

impl Outcome {
    /// The same for a compensation: what is not there (404, 410) is undone, and what it asks for can't exist already.
    #[must_use]
    pub fn of_compensation(self, evidence: &Evidence) -> Self {
        match (evidence, self) {
            (Evidence::Answered(answer), _) if matches!(answer.status, 404 | 410) => {
                Self::Confirmed
            }
            (_, Self::Exists) => Self::Rejected,
            (_, outcome) => outcome,
        }
    }

    /// The class, as attempts and metrics name it.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Self::Confirmed => Class::Confirmed,
            Self::Exists => Class::Exists,
            Self::Retry(_) => Class::Retry,
            Self::InDoubt => Class::InDoubt,
            Self::Rejected | Self::Unsendable => Class::Failed,
        }
    }
}

/// Says what `evidence` means under a leaf's `rules`; `said` is what its verdict gave.
#[must_use]
pub fn classify(evidence: &Evidence, rules: &Rules, said: Option<Class>) -> Outcome {
    match evidence {
        Evidence::NotSent(NotSent::Unsendable(_)) => Outcome::Unsendable,
        Evidence::NotSent(NotSent::Unconnected(_)) => retry(false, None, Some(Trouble::Connection)),
        Evidence::NotSent(NotSent::Refused(_) | NotSent::OutOfTime(_) | NotSent::LeaseOver) => {
            retry(false, None, None)
        }
        Evidence::Unanswered(_) => Outcome::InDoubt,
        Evidence::Answered(answer) => {
            let status = answer.status;
            let exists = rules.exists_on.contains(&status).then_some(Class::Exists);
            let mapped = || rules.outcome.get(&status).copied();
            match said.or(exists).or_else(mapped) {
                Some(Class::Confirmed) => Outcome::Confirmed,
                Some(Class::Exists) => Outcome::Exists,
                Some(Class::Retry) => retry(status != 429, answer.retry_after, None),
                Some(Class::InDoubt) => Outcome::InDoubt,
                Some(Class::Failed) => Outcome::Rejected,
                None => by_table(status, answer.retry_after),
            }
        }
    }
}

/// The contract's table, section 3.
fn by_table(status: u16, retry_after: Option<Duration>) -> Outcome {
    match status {
        200..=299 => Outcome::Confirmed,
        401 | 407 => retry(false, retry_after, Some(Trouble::Credential)),
        408 => Outcome::InDoubt,
        425 => retry(true, retry_after, None),
        429 => retry(false, retry_after, None),
        503 if retry_after.is_some() => retry(true, retry_after, None),
        // Proxies send these after the request went upstream (RFC 9110 section 15.6).
        500..=599 => Outcome::InDoubt,
        300..=499 => Outcome::Rejected,
        // Not a final status of HTTP (RFC 9110 section 15): nobody knows what it says.
        _ => Outcome::InDoubt,
    }
}

fn retry(spends: bool, not_before: Option<Duration>, trouble: Option<Trouble>) -> Outcome {
    Outcome::Retry(Retry {
        spends,
        not_before,
        trouble,
    })
}
