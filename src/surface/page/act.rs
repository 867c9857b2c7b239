//! What is done from the page: each action is a form that its own page gets, asks for a reason, and is refused where the
//! call has moved since it was shown.
//!
//! What was done is said on the page that comes next; what was refused, on the page of the call or batch that it was for.

use axum::{
    extract::{Path, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    batch,
    call::{self, Tried},
    form,
    problem::{PageProblem, from_store},
    session,
    visit::{Said, Visit, local},
};
use crate::{
    domain::call::CallId,
    store::{
        StoreError,
        operator::{
            act::{ActError, By, Change, Refusal, Target},
            leaves::Treatment,
        },
    },
    surface::{Surface, server},
};

/// A reason is no longer than this.
const REASON_MAX: usize = 1000;

/// What a form sends.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Form {
    pub(super) r#do: String,
    pub(super) reason: String,
    /// The attempts that the call was shown with.
    attempts: String,
    status: String,
    body: String,
    /// The name, where nobody logs in.
    pub(super) who: String,
    /// Where it goes on.
    back: String,
    /// Of a change of many: as many as were counted.
    pub(super) expect: String,
    /// Over how long what is sent again is spread.
    pub(super) spread: String,
}

/// Why nothing was done.
#[derive(Debug)]
pub(super) enum Undone {
    Refused(Refusal),
    Store(StoreError),
}

impl From<ActError> for Undone {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Refused(refusal) => Self::Refused(refusal),
            ActError::Store(error) => Self::Store(error),
        }
    }
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) fn refuse(message: impl Into<String>, hint: &str) -> Undone {
    Undone::Refused(Refusal {
        message: message.into(),
        hint: Some(hint.to_owned()),
        absent: false,
    })
}

/// Reads a form, once it is known that whoever sends it may act.
pub(super) async fn read<T: DeserializeOwned>(
    visit: &Visit,
    request: Request,
) -> Result<T, PageProblem> {
    let form = form::read(request, server::BODY_BYTES_MAX).await;
    form.map_err(|problem| PageProblem::new(visit, &problem))
}

impl Form {
    pub(super) fn by(&self, visit: &Visit) -> Result<By, Undone> {
        let reason = self.reason.trim();
        if reason.is_empty() {
            return Err(refuse(
                "no reason was given",
                "say why: it is kept with the action",
            ));
        }
        if reason.chars().count() > REASON_MAX || reason.contains('\0') {
            let message = format!("the reason is longer than {REASON_MAX} characters, or no text");
            return Err(refuse(message, "say it shorter"));
        }
        let who = session::name(&self.who);
        Ok(By {
            actor: visit.actor(who.as_deref()),
            reason: reason.to_owned(),
        })
    }

    /// What is to be done to a call.
    pub(super) fn change(&self) -> Result<Change<'_>, Undone> {
        let body = self.body.trim();
        let body = (!body.is_empty()).then_some(body);
        Ok(match self.r#do.as_str() {
            "retry" => Change::Retry,
            "cancel" => Change::Cancel,
            "waive" => Change::Waive,
            "not_executed" => Change::NotExecutedSend,
            "end" => Change::NotExecutedEnd,
            "release" => Change::Release,
            "confirm" => {
                if let Some(Err(flaw)) = body.map(serde_json::from_str::<&RawValue>) {
                    let message = format!("the body is no JSON: {flaw}");
                    let hint = "leave it empty, or write what the leaf has answered";
                    return Err(refuse(message, hint));
                }
                let status = match self.status.trim() {
                    "" => Some(200),
                    status => status.parse().ok().filter(|s| (100..1000).contains(s)),
                };
                let Some(status) = status else {
                    let message = format!("{} is no HTTP status", self.status.trim());
                    return Err(refuse(message, "200 to 299 are those of a success"));
                };
                Change::Confirm { status, body }
            }
            other => {
                return Err(refuse(
                    format!("\"{other}\" is nothing that can be done to a call"),
                    "use the buttons of its page",
                ));
            }
        })
    }

    fn target(&self, id: CallId) -> Result<Target, Undone> {
        let attempts = self.attempts.trim();
        let attempts = if attempts.is_empty() {
            None
        } else {
            let number = attempts.parse();
            Some(number.map_err(|_no_number| {
                refuse(
                    format!("attempts = {attempts} is no number"),
                    "send what the page's form has",
                )
            })?)
        };
        Ok(Target { id, attempts })
    }

    pub(super) fn tried(&self) -> Tried {
        Tried {
            deed: self.r#do.clone(),
            reason: self.reason.clone(),
            status: self.status.clone(),
            body: self.body.clone(),
        }
    }

    /// What was done, on the page where it goes on.
    pub(super) fn done(&self, visit: &Visit, fallback: &str, text: String) -> Response {
        let said = Said {
            done: true,
            text,
            hint: None,
        };
        self.goes_on(visit, fallback, &said)
    }

    pub(super) fn goes_on(&self, visit: &Visit, fallback: &str, said: &Said) -> Response {
        let back = if self.back.is_empty() {
            fallback
        } else {
            local(&self.back)
        };
        let mut response = Redirect::to(back).into_response();
        let headers = response.headers_mut();
        headers.append(header::SET_COOKIE, said.carry());
        if let (None, Some(who)) = (&visit.session, session::name(&self.who)) {
            headers.append(header::SET_COOKIE, visit.keep_who(&who));
        }
        response
    }
}

pub(super) fn refused(refusal: Refusal) -> Said {
    Said {
        done: false,
        text: refusal.message,
        hint: refusal.hint,
    }
}

/// The visit, with what was refused to be said on its page.
fn with_refusal(visit: Visit, refusal: Refusal, form: &Form) -> Visit {
    Visit {
        said: Some(refused(refusal)),
        who: session::name(&form.who).unwrap_or(visit.who),
        ..visit
    }
}

/// `POST /calls/{id}`
pub(super) async fn on_call(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    visit: Visit,
    request: Request,
) -> Result<Response, PageProblem> {
    let form: Form = read(&visit, request).await?;
    let done = act(&surface, &visit, &id, &form).await;
    surface.forget();
    match done {
        Ok(text) => Ok(form.done(&visit, &format!("/calls/{id}"), text)),
        Err(Undone::Store(error)) => Err(from_store(&visit, error)),
        Err(Undone::Refused(refusal)) => {
            let visit = with_refusal(visit, refusal, &form);
            call::page(&surface, &visit, &id, StatusCode::CONFLICT, form.tried()).await
        }
    }
}

async fn act(surface: &Surface, visit: &Visit, id: &str, form: &Form) -> Result<String, Undone> {
    let number = id.parse::<CallId>().map_err(|_no_number| {
        refuse(format!("there is no call {id}"), "an id is a whole number")
    })?;
    let by = form.by(visit)?;
    let target = form.target(number)?;
    let store = surface.people();
    if form.r#do == "release" {
        let released = store.release(&by, target).await?;
        return Ok(match released.next {
            Some(next) => format!("Call {next} goes next."),
            None => "Released; no call waits behind it.".to_owned(),
        });
    }
    let change = form.change()?;
    let state = store.act_on(&by, change, target).await?;
    Ok(said(number, change, &state))
}

/// What was done, and where the call is now.
fn said(id: CallId, change: Change<'_>, state: &str) -> String {
    match (change, state) {
        (Change::Cancel, "dispatching" | "in_doubt") => format!(
            "Call {id} is marked: it is not sent again, and ends as confirmed or cancelled when it is known what became of it."
        ),
        (Change::Retry | Change::NotExecutedSend, "pending") => {
            format!("Call {id} is sent again when its turn comes.")
        }
        (Change::Waive, _) => format!("Call {id} is waived: the effect stands."),
        (_, state) => format!("Call {id} is {state}."),
    }
}

/// `POST /batches/{id}`
pub(super) async fn on_batch(
    State(surface): State<Surface>,
    Path(id): Path<String>,
    visit: Visit,
    request: Request,
) -> Result<Response, PageProblem> {
    let form: Form = read(&visit, request).await?;
    let done = async {
        let batch: Uuid = id.parse().map_err(|_no_uuid| {
            refuse(format!("there is no batch {id}"), "a batch's id is a UUID")
        })?;
        if form.r#do != "cancel" {
            let message = format!("\"{}\" is nothing that can be done to a batch", form.r#do);
            return Err(refuse(message, "use the buttons of its page"));
        }
        let by = form.by(&visit)?;
        let state = surface.people().cancel_batch(&by, batch).await?;
        Ok(format!("The batch is {state}."))
    };
    let done: Result<String, Undone> = done.await;
    surface.forget();
    match done {
        Ok(text) => Ok(form.done(&visit, &format!("/batches/{id}"), text)),
        Err(Undone::Store(error)) => Err(from_store(&visit, error)),
        Err(Undone::Refused(refusal)) => {
            let visit = with_refusal(visit, refusal, &form);
            batch::page(&surface, &visit, &id, StatusCode::CONFLICT, form.tried()).await
        }
    }
}

/// `POST /leaves/{leaf}`
pub(super) async fn on_leaf(
    State(surface): State<Surface>,
    Path(leaf): Path<String>,
    visit: Visit,
    request: Request,
) -> Result<Response, PageProblem> {
    let form: Form = read(&visit, request).await?;
    let done = async {
        let by = form.by(&visit)?;
        let store = surface.people();
        match form.r#do.as_str() {
            "pause" if store.pause(&by, &leaf).await? => Ok(format!(
                "Leaf {leaf} is paused; what is under way comes to its end."
            )),
            "pause" => Ok(format!(
                "Leaf {leaf} is paused. No instance ever knew a leaf of that name."
            )),
            "resume" => {
                store.resume(&by, Some(&leaf)).await?;
                Ok(format!("Leaf {leaf} is resumed."))
            }
            other => Err(refuse(
                format!("\"{other}\" is nothing that can be done to a leaf"),
                "use the buttons of the overview",
            )),
        }
    };
    let done: Result<String, Undone> = done.await;
    overview_after(&surface, &visit, &form, done)
}

/// `POST /`
pub(super) async fn on_all(
    State(surface): State<Surface>,
    visit: Visit,
    request: Request,
) -> Result<Response, PageProblem> {
    let form: Form = read(&visit, request).await?;
    let done = async {
        let treatment = match form.r#do.as_str() {
            "resume_all_probe" => Treatment::Probe,
            "resume_all_resend" => Treatment::Resend,
            other => {
                return Err(refuse(
                    format!("\"{other}\" is nothing that can be done"),
                    "use the buttons of the overview",
                ));
            }
        };
        let by = form.by(&visit)?;
        let origin = surface.people().origin().await?;
        if origin.changed().is_none() {
            return Err(refuse(
                "the database has not changed, so there is nothing to go on from",
                "somebody else has said how to go on, or no instance has noticed a change",
            ));
        }
        let moved = surface.people().go_on(&by, &origin.is, treatment).await?;
        Ok(format!("Sending goes on; {moved} calls were moved."))
    };
    let done: Result<String, Undone> = done.await;
    overview_after(&surface, &visit, &form, done)
}

/// The overview says what came of it, either way.
fn overview_after(
    surface: &Surface,
    visit: &Visit,
    form: &Form,
    done: Result<String, Undone>,
) -> Result<Response, PageProblem> {
    surface.forget();
    let said = match done {
        Ok(text) => Said {
            done: true,
            text,
            hint: None,
        },
        Err(Undone::Store(error)) => return Err(from_store(visit, error)),
        Err(Undone::Refused(refusal)) => refused(refusal),
    };
    Ok(form.goes_on(visit, "/", &said))
}
