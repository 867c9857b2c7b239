//! Changes of all calls that match a list's filter: counted first, then begun as a job.

use std::time::Duration;

use axum::{
    extract::{Query, Request, State},
    http::StatusCode,
    response::Response,
};
use serde::Serialize;

use super::{
    act::{Form, Undone, read, refuse, refused},
    lists::Asked,
    problem::{PageProblem, from_store},
    render,
    view::{Button, Line, form},
    visit::Visit,
};
use crate::{
    store::operator::{
        act::{By, Change},
        job::{Matching, NewJob},
        list::Filter,
    },
    surface::{
        Surface,
        meant::{meant, spread},
    },
};

/// How long calls are counted.
const COUNTING: Duration = Duration::from_secs(5);

/// So many are shown as examples.
const SHOWN: usize = 20;

/// What the template is given.
#[derive(Debug, Serialize)]
struct BulkPage {
    /// What is to be done.
    deed: String,
    label: String,
    says: String,
    /// The list that is meant; its form goes there, too.
    list: String,
    number: u64,
    /// Counting them all would have taken long.
    more: bool,
    calls: Vec<Line>,
    reason: String,
    who: String,
    /// Whether it can be spread in time.
    spreads: bool,
    /// It can't be taken back.
    grave: bool,
}

/// What there is to do to many, for a list of that state.
const DEEDS: [(&str, Change<'static>, &str, &str); 5] = [
    (
        "retry",
        Change::Retry,
        "Send all again",
        "Those that failed are sent again, each with a fresh allowance of attempts.",
    ),
    (
        "confirm",
        Change::Confirm {
            status: 200,
            body: None,
        },
        "All were done: confirm",
        "Your word becomes the confirmation of each that is parked; nothing is sent.",
    ),
    (
        "not_executed",
        Change::NotExecutedSend,
        "None was done: send all",
        "Your word is that the leaf has done nothing for any that is parked: each is sent again. What was done after all is \
         done twice.",
    ),
    (
        "end",
        Change::NotExecutedEnd,
        "None was done: send none",
        "Your word is that the leaf has done nothing for any that is parked: each ends as cancelled.",
    ),
    (
        "cancel",
        Change::Cancel,
        "Cancel all",
        "None is sent any more. Their batches are cancelled with them, unless those allow failures.",
    ),
];

/// What can be done to all that match; nothing where the list is not one of a state.
pub(super) fn buttons(filter: &Filter, list: &str) -> Vec<Button> {
    let deeds = DEEDS.iter().filter(|(_, change, ..)| {
        let state = filter.state.as_deref();
        state.is_some_and(|state| change.states().contains(&state))
    });
    deeds
        .map(|(deed, _, label, says)| form(list.to_owned(), deed, *label, says))
        .collect()
}

/// `POST /calls?…`
pub(super) async fn on_calls(
    State(surface): State<Surface>,
    visit: Visit,
    Query(asked): Query<Asked>,
    request: Request,
) -> Result<Response, PageProblem> {
    let form: Form = read(&visit, request).await?;
    let list = asked.behind(None);
    match act(&surface, &visit, &asked, &form).await {
        Ok(Done::Counted(page)) => Ok(render::page(&visit, StatusCode::OK, "bulk.html", &*page)),
        Ok(Done::Begun(job)) => {
            let text = "The job is begun: it goes on by itself, also if you leave.".to_owned();
            Ok(form.done(&visit, &format!("/jobs/{job}"), text))
        }
        Err(Undone::Store(error)) => Err(from_store(&visit, error)),
        Err(Undone::Refused(refusal)) => Ok(form.goes_on(&visit, &list, &refused(refusal))),
    }
}

enum Done {
    Counted(Box<BulkPage>),
    Begun(i64),
}

async fn act(surface: &Surface, visit: &Visit, asked: &Asked, form: &Form) -> Result<Done, Undone> {
    let wrong = |message: String| {
        refuse(
            message,
            "go back to the list, and say which calls are meant",
        )
    };
    let by = form.by(visit)?;
    let change = form.change()?;
    let filter = asked.filter().and_then(|filter| meant(filter, change));
    let filter = filter.map_err(wrong)?;
    let store = surface.people();
    let matching = store.matching(&filter, COUNTING).await?;
    if form.expect.is_empty() {
        let shown = matching.first.get(..SHOWN).unwrap_or(&matching.first);
        let calls = store.calls_by_id(shown).await?;
        let page = counted(asked, form, &matching, calls.iter().map(Line::of).collect());
        return Ok(Done::Counted(Box::new(page)));
    }
    let number = matching.number.to_string();
    if matching.complete && form.expect != number && form.expect != "many" {
        return Err(refuse(
            format!(
                "{number} calls match now, and {} were counted before",
                form.expect
            ),
            "look at the list again",
        ));
    }
    begin(surface, &by, change, &filter, &matching, form).await
}

fn counted(asked: &Asked, form: &Form, matching: &Matching, calls: Vec<Line>) -> BulkPage {
    let deed = DEEDS.iter().find(|(deed, ..)| *deed == form.r#do);
    let (label, says) = deed.map_or(("Change all", ""), |(_, _, label, says)| (*label, *says));
    BulkPage {
        deed: form.r#do.clone(),
        label: label.to_owned(),
        says: says.to_owned(),
        list: asked.behind(None),
        number: matching.number,
        more: !matching.complete,
        calls,
        reason: form.reason.clone(),
        who: form.who.clone(),
        spreads: matches!(form.r#do.as_str(), "retry" | "not_executed"),
        grave: form.r#do != "retry",
    }
}

async fn begin(
    surface: &Surface,
    by: &By,
    change: Change<'_>,
    filter: &Filter,
    matching: &Matching,
    form: &Form,
) -> Result<Done, Undone> {
    let spread = match form.spread.trim() {
        "" => None,
        text => Some(spread(text).map_err(|flaw| refuse(flaw, "leave it empty for at once"))?),
    };
    let job = NewJob {
        change,
        filter,
        spread,
        last: matching.last,
        matched: matching.complete.then_some(matching.number),
    };
    let job = surface.people().begin_job(by, &job).await?;
    surface.context.nudges.jobs.give();
    surface.forget();
    Ok(Done::Begun(job.id))
}
