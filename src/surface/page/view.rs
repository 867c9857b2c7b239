//! What templates are given: calls, moments and buttons as they are shown.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde::Serialize;

use super::visit::percent;
use crate::{
    present::{
        remedy::Remedy,
        standing::standing,
        text::{Fields, age, shorten},
    },
    store::operator::{CallRow, leaves::Treatment, watch::LastWords},
};

/// Of what a leaf said, so many characters are shown beside a call.
const WORDS: usize = 240;

/// What a state looks like; the word is always there, too.
pub(super) fn tone(state: &str) -> &'static str {
    match state {
        "confirmed" | "succeeded" | "found" => "good",
        "dispatching" | "accepted" | "closing" | "open" => "moving",
        "in_doubt" | "cancelling" | "compensating" | "probe_unclear" | "exists" => "doubt",
        "parked" | "failed" | "confirmed_again" => "bad",
        "pending" | "retry" => "waiting",
        _ => "over",
    }
}

/// A moment, as it is shown and as a machine reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Moment {
    /// ISO 8601; empty for never.
    iso: String,
    /// In full, in UTC.
    utc: String,
    /// The time of day.
    clock: String,
    /// How long ago, or in how long.
    pub(super) rel: String,
    /// For the order of a timeline.
    #[serde(skip)]
    pub(super) at: Option<Timestamp>,
}

impl Moment {
    /// Of a time as PostgreSQL's JSON has it.
    pub(super) fn read(text: &str, now: Timestamp) -> Self {
        match text.parse::<Timestamp>() {
            Ok(at) => Self::of(at, now),
            // `infinity`, or a year that this can't say.
            Err(_other) => Self {
                iso: String::new(),
                utc: text.to_owned(),
                clock: text.to_owned(),
                rel: String::new(),
                at: None,
            },
        }
    }

    /// Of this instant.
    pub(super) fn of(at: Timestamp, now: Timestamp) -> Self {
        let utc = at.to_zoned(TimeZone::UTC);
        let seconds = now.duration_since(at).as_secs_f64();
        let rel = if seconds >= 0.0 {
            format!("{} ago", age(seconds))
        } else {
            format!("in {}", age(-seconds))
        };
        Self {
            iso: at.to_string(),
            utc: utc.strftime("%Y-%m-%d %H:%M:%S%.3f UTC").to_string(),
            clock: utc.strftime("%H:%M:%S").to_string(),
            rel,
            at: Some(at),
        }
    }
}

/// The database's now, from a row that has a time and its age.
pub(super) fn now_of(created_at: &str, age: f64) -> Timestamp {
    let created: Option<Timestamp> = created_at.parse().ok();
    let age = SignedDuration::try_from_secs_f64(age).ok();
    created
        .zip(age)
        .and_then(|(created, age)| created.checked_add(age).ok())
        .unwrap_or_else(Timestamp::now)
}

/// A call as lists show it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    pub(super) id: i64,
    leaf: String,
    key: String,
    state: String,
    reason: Option<String>,
    standing: String,
    tone: &'static str,
    stuck: bool,
    attempts: u32,
    last_status: Option<i32>,
    last_error: Option<String>,
    batch: Option<String>,
    run_when: String,
    undoes: Option<i64>,
    undone: bool,
    age: String,
    /// What the leaf said last, in short.
    words: Option<String>,
}

impl Line {
    /// Of a row.
    pub(super) fn of(call: &CallRow) -> Self {
        let fields = Fields::read(&call.json).unwrap_or_default();
        Self {
            id: call.id,
            leaf: call.leaf.clone(),
            key: call.key.clone(),
            state: call.state.clone(),
            reason: call.reason.clone(),
            standing: standing(call),
            tone: tone(&call.state),
            stuck: call.stuck,
            attempts: call.attempts,
            last_status: call.last_status,
            last_error: fields.text("last_error"),
            batch: call.batch.map(|batch| batch.to_string()),
            run_when: call.run_when.clone(),
            undoes: call.undoes,
            undone: fields.text("undone_at").is_some(),
            age: age(call.age),
            words: None,
        }
    }

    /// The same with what the leaf said last: its status, and the beginning of the body where bodies are shown.
    pub(super) fn with_words(self, words: Option<&LastWords>, show_bodies: bool) -> Self {
        let told = words.and_then(|words| {
            let status = words.status.map(|status| status.to_string());
            let body = show_bodies.then(|| shorten(&words.body, WORDS));
            let parts: Vec<String> = status.into_iter().chain(body).collect();
            (!parts.is_empty()).then(|| parts.join(" "))
        });
        Self {
            words: told,
            ..self
        }
    }
}

/// Something that a person can do: a form, or a place to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Button {
    /// On the button.
    label: String,
    /// What it is for, where that does not show.
    about: Option<String>,
    /// What it means, and what follows.
    says: String,
    /// Where it leads; the path of its form where it has a deed.
    to: String,
    /// What is done; empty for a mere link.
    deed: &'static str,
    /// The attempts that the call is shown with.
    attempts: Option<u32>,
    /// It needs a confirmation's status and body.
    confirms: bool,
    /// It can't be taken back.
    grave: bool,
}

fn link(label: impl Into<String>, to: impl Into<String>) -> Button {
    Button {
        label: label.into(),
        about: None,
        says: String::new(),
        to: to.into(),
        deed: "",
        attempts: None,
        confirms: false,
        grave: false,
    }
}

pub(super) fn form(to: String, deed: &'static str, label: impl Into<String>, says: &str) -> Button {
    Button {
        says: says.to_owned(),
        deed,
        ..link(label, to)
    }
}

fn call_form(
    id: i64,
    about: Option<&CallRow>,
    deed: &'static str,
    label: &str,
    says: &str,
) -> Button {
    let shown = about.filter(|call| call.id == id);
    Button {
        attempts: shown.map(|call| call.attempts),
        ..form(format!("/calls/{id}"), deed, label, says)
    }
}

/// The button for this remedy; `about` is the call that it is shown with.
pub(super) fn button(remedy: &Remedy, about: Option<&CallRow>) -> Button {
    let undoes = about.is_some_and(|call| call.undoes.is_some());
    match remedy {
        Remedy::Confirm(id) => {
            let (label, says) = if undoes {
                (
                    "It is undone already",
                    "Your word becomes the confirmation that the effect is gone; nothing is sent.",
                )
            } else {
                (
                    "It was done: confirm",
                    "Your word becomes the confirmation that the effect exists; nothing is sent.",
                )
            };
            let mut button = call_form(*id, about, "confirm", label, says);
            (button.confirms, button.grave) = (true, true);
            button
        }
        Remedy::NotExecuted(id) => {
            let says = "Your word is that the leaf has done nothing for it: it is sent again. Was it done after all, it is done twice.";
            let label = "It was not done: send it";
            let mut button = call_form(*id, about, "not_executed", label, says);
            button.grave = true;
            button
        }
        Remedy::Waive(id) => {
            let says = "The effect stays, and is shown as waived. The teardown goes on without it.";
            let mut button = call_form(*id, about, "waive", "Let the effect stand", says);
            button.grave = true;
            button
        }
        Remedy::Retry(id) => {
            let other = about.is_some_and(|call| call.id != *id);
            let label = if other {
                format!("Send call {id} again")
            } else {
                "Send it again".to_owned()
            };
            let says = "It is sent again, with a fresh allowance of attempts.";
            call_form(*id, about, "retry", &label, says)
        }
        Remedy::Cancel(id) => {
            let says = "It is not sent any more. Its batch is cancelled with it, unless the batch allows failures.";
            let mut button = call_form(*id, about, "cancel", "Cancel it", says);
            button.grave = true;
            button
        }
        Remedy::Release(id) => {
            let says = "The next call of the same ordering key goes, once, as if this one had been confirmed.";
            call_form(*id, about, "release", "Let the next one go", says)
        }
        Remedy::Resume(leaf) => resume(leaf),
        Remedy::ResumeAll(treatment) => go_on(*treatment),
        Remedy::CancelBatch(id) => {
            let mut button = form(
                format!("/batches/{id}"),
                "cancel",
                "Cancel the batch",
                "What waits is not sent any more. Once what is under way has ended, what was confirmed is undone.",
            );
            button.grave = true;
            button
        }
        Remedy::ShowCall(id) => link(format!("Look at call {id}"), format!("/calls/{id}")),
        Remedy::ShowBatch(id) => link("Look at its batch", format!("/batches/{id}")),
        Remedy::Check => link("Look at the instances", "/#instances"),
    }
}

/// Go on after the database changed.
fn go_on(treatment: Treatment) -> Button {
    match treatment {
        Treatment::Probe => form(
            "/".to_owned(),
            "resume_all_probe",
            "Go on, and look into each",
            "What was claimed or pending before may have been executed: each is in doubt, and the leaf is asked.",
        ),
        Treatment::Resend => Button {
            grave: true,
            ..form(
                "/".to_owned(),
                "resume_all_resend",
                "Go on, and send each",
                "What was claimed or pending before was not executed: each is sent. What was executed after all is done twice.",
            )
        },
    }
}

/// Send to a leaf again.
pub(super) fn resume(leaf: &str) -> Button {
    let says = "What waits for this leaf goes, and its breakers are closed.";
    let to = format!("/leaves/{}", percent(leaf));
    Button {
        about: Some(format!("leaf {leaf}")),
        ..form(to, "resume", "Resume", says)
    }
}

/// Send to a leaf no more.
pub(super) fn pause(leaf: &str) -> Button {
    let says = "Nothing is sent to it until it is resumed; what is under way comes to its end. Deadlines still count.";
    let to = format!("/leaves/{}", percent(leaf));
    Button {
        about: Some(format!("leaf {leaf}")),
        ..form(to, "pause", "Pause", says)
    }
}

/// A parked call was not executed, and is not to be.
pub(super) fn end(call: &CallRow) -> Button {
    let says = "Your word is that the leaf has done nothing for it, and nothing is sent: it ends as cancelled.";
    let mut button = call_form(
        call.id,
        Some(call),
        "end",
        "It was not done: don't send it",
        says,
    );
    button.grave = true;
    button
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_by_the_database_s_clock() {
        let now = now_of("2025-11-30T08:00:00.5+00:00", 61.5);
        let moment = Moment::read("2025-11-30T09:00:00.123456+01:00", now);
        assert_eq!(
            (moment.utc.as_str(), moment.rel.as_str()),
            ("2025-11-30 08:00:00.123 UTC", "1m 1s ago")
        );
        let later = Moment::read("2025-11-30T08:02:02+00:00", now);
        assert_eq!(later.rel, "in 1m");
        assert_eq!(Moment::read("infinity", now).utc, "infinity");
    }

    #[test]
    fn a_leaf_of_a_row_stays_inside_its_path() {
        let button = resume("a/../b?c=\"<x>\"\n");
        assert_eq!(button.to, "/leaves/a%2F..%2Fb%3Fc%3D%22%3Cx%3E%22%0A");
    }
}
