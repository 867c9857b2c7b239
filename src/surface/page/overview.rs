//! `/`: what is stuck and why, the leaves as lanes, who works, what was done by hand lately.

use axum::{extract::State, http::StatusCode, response::Response};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::{
    actions::{Deed, deeds},
    job::JobPage,
    lanes::{self, Lane},
    render,
    view::{Button, Line, Moment, button, tone},
    visit::{Visit, percent},
    watched::{STUCK, Seen, stuck},
};
use crate::{
    observe::Refused,
    present::{
        explain::{Around, explain_call},
        explain_batch::in_short,
        remedy::Remedy,
        text::{Fields, age},
    },
    store::{
        operator::{CallRow, leaves::Treatment, watch::StuckBatch},
        stats::Count,
    },
    surface::Surface,
};

/// What the template is given.
#[derive(Debug, Default, Serialize)]
pub(super) struct Overview {
    banners: Vec<Banner>,
    tiles: Vec<Tile>,
    stuck: Vec<Card>,
    /// Calls and batches that are stuck, in all.
    stuck_all: u64,
    /// Groups that are not shown.
    stuck_more: usize,
    batches: Vec<BatchCard>,
    batches_more: u64,
    /// How many batches are in which state.
    batch_states: Vec<(String, u64)>,
    lanes: Vec<Lane>,
    /// Unknown leaves that are not shown.
    lanes_more: usize,
    /// Of how long the latencies are.
    lately: String,
    instances: Vec<InstanceLine>,
    deeds: Vec<Deed>,
    /// The latest changes of many calls.
    jobs: Vec<JobPage>,
    /// The database answered.
    known: bool,
    name: String,
}

#[derive(Debug, Serialize)]
struct Banner {
    tone: &'static str,
    title: String,
    text: String,
    buttons: Vec<Button>,
}

#[derive(Debug, Serialize)]
struct Tile {
    label: String,
    number: u64,
    /// There are more.
    more: bool,
    to: String,
    tone: &'static str,
}

/// Stuck calls of one leaf, with the oldest as the example.
#[derive(Debug, Serialize)]
struct Card {
    call: Line,
    calls: u64,
    why: String,
    buttons: Vec<Button>,
    /// All of them, as a list.
    to: String,
}

#[derive(Debug, Serialize)]
struct BatchCard {
    id: String,
    name: Option<String>,
    standing: String,
    tone: &'static str,
    waits: String,
    why: String,
    /// The call that a person could move, and what is to be said of it.
    call: Option<Line>,
    call_why: String,
    buttons: Vec<Button>,
}

#[derive(Debug, Serialize)]
struct InstanceLine {
    id: String,
    name: String,
    alive: bool,
    here: bool,
    started: String,
    heard: String,
    leaves: usize,
}

/// `GET /`
pub(super) async fn overview(State(surface): State<Surface>, visit: Visit) -> Response {
    let seen = surface.page.watched.look(&surface).await;
    let (overview, status) = match &seen {
        Ok(seen) => (of(&surface, seen), StatusCode::OK),
        Err(error) => (blind(&surface, error), StatusCode::SERVICE_UNAVAILABLE),
    };
    render::page(&visit, status, "overview.html", &overview)
}

/// What is known without the database.
fn blind(surface: &Surface, error: &str) -> Overview {
    let (lanes, lately) = lanes::own(surface);
    Overview {
        banners: vec![Banner {
            tone: "bad",
            title: "The database does not answer".to_owned(),
            text: format!(
                "Nothing is sent until it does; what leaves have answered meanwhile is kept, and written down then. \
                 Below is what this instance knows by itself. ({error})"
            ),
            buttons: Vec::new(),
        }],
        lanes,
        lately: age(lately.as_secs_f64()),
        name: surface.context.identity.name.clone(),
        ..Overview::default()
    }
}

fn of(surface: &Surface, seen: &Seen) -> Overview {
    let tables = &seen.tables;
    let groups = stuck(&tables.counts);
    let (lanes, lanes_more, lately) = lanes::all(surface, seen);
    let cards = groups.iter().take(STUCK);
    let here = surface.context.identity.id;
    Overview {
        banners: banners(surface, seen),
        tiles: tiles(seen),
        stuck: cards
            .filter_map(|count| card(count, seen, surface.show_bodies))
            .collect(),
        stuck_all: stuck_calls(seen) + stuck_batches(&seen.batches),
        stuck_more: groups.len().saturating_sub(STUCK),
        batches: seen
            .batches
            .iter()
            .map(|batch| batch_card(batch, seen, surface.show_bodies))
            .collect(),
        batches_more: batches_more(&seen.batches),
        batch_states: tables.overview.batches.clone(),
        lanes,
        lanes_more,
        lately: age(lately.as_secs_f64()),
        instances: seen
            .instances
            .iter()
            .filter_map(|instance| instance_line(instance, here))
            .collect(),
        deeds: deeds(&seen.actions),
        jobs: seen.jobs.iter().map(|job| JobPage::of(&job.json)).collect(),
        known: true,
        name: surface.context.identity.name.clone(),
    }
}

/// Of its row as JSON.
fn instance_line(json: &str, here: Uuid) -> Option<InstanceLine> {
    let row = Fields::read(json)?;
    let now = Timestamp::now();
    let since = |name: &str| Moment::read(&row.cell(name), now).rel;
    let leaves: Vec<String> = serde_json::from_str(row.raw("leaves")?).ok()?;
    Some(InstanceLine {
        id: row.cell("id"),
        name: row.cell("name"),
        alive: row.cell("alive") == "true",
        here: row.cell("id") == here.to_string(),
        started: since("started_at"),
        heard: since("heartbeat_at"),
        leaves: leaves.len(),
    })
}

fn stuck_batches(batches: &[StuckBatch]) -> u64 {
    batches.first().map_or(0, |batch| batch.all)
}

fn stuck_calls(seen: &Seen) -> u64 {
    seen.tables.counts.iter().map(|count| count.stuck).sum()
}

fn batches_more(batches: &[StuckBatch]) -> u64 {
    let all = stuck_batches(batches);
    all.saturating_sub(u64::try_from(batches.len()).unwrap_or(u64::MAX))
}

fn banners(surface: &Surface, seen: &Seen) -> Vec<Banner> {
    let context = &surface.context;
    let mut banners = Vec::new();
    let mut say = |tone, title: &str, text: String, buttons| {
        banners.push(Banner {
            tone,
            title: title.to_owned(),
            text,
            buttons,
        });
    };
    if !context.may_go_on() {
        let change = seen.change.as_deref().unwrap_or("it is being looked at");
        let ways = [Treatment::Probe, Treatment::Resend];
        say(
            "bad",
            "The database is not the one that it was",
            format!(
                "It was restored, cloned, or lost commits ({change}). Nothing is sent until a person says how what was \
                 claimed or pending before is to be treated."
            ),
            ways.map(|way| button(&Remedy::ResumeAll(way), None)).into(),
        );
    } else if seen.tables.overview.instances == 0 {
        let why = context.unready().unwrap_or("its lease has not begun yet");
        say(
            "bad",
            "No instance is at work",
            format!("No lease runs, so nothing is sent. This instance: {why}."),
            Vec::new(),
        );
    } else if let Some(why) = context.unready() {
        say(
            "doubt",
            "This instance does not work",
            format!("{why}. The others go on."),
            Vec::new(),
        );
    }
    if context.observer.is_refused(Refused::Files) {
        say(
            "doubt",
            "Changed certificates of a leaf, or its proxy's password, were refused",
            "The former ones stay in force. This instance's log names each fault, and so does `leafhopper check`."
                .to_owned(),
            Vec::new(),
        );
    }
    if context.observer.is_refused(Refused::Reload) {
        say(
            "doubt",
            "The last reload of the configuration was refused",
            "The former one stays in force. This instance's log names each fault, and so does `leafhopper check`."
                .to_owned(),
            Vec::new(),
        );
    }
    let stalled = context.stalled();
    if !stalled.is_empty() {
        let text = format!("These do not turn: {}. Restart it.", stalled.join(", "));
        say(
            "bad",
            "Loops of this instance stand still",
            text,
            Vec::new(),
        );
    }
    banners
}

fn tiles(seen: &Seen) -> Vec<Tile> {
    let counts = &seen.tables.counts;
    let sum = |state: &str| -> u64 {
        let of_state = counts.iter().filter(|count| count.state == state);
        of_state.map(|count| count.calls).sum()
    };
    let tile = |label: &str, number, to: &str, bad: &'static str| Tile {
        label: label.to_owned(),
        number,
        more: false,
        to: to.to_owned(),
        tone: if number > 0 { bad } else { "none" },
    };
    vec![
        stuck_tile(stuck_calls(seen), stuck_batches(&seen.batches)),
        tile("waiting", sum("pending"), "/calls?state=pending", "waiting"),
        tile(
            "in flight",
            sum("dispatching") + sum("accepted"),
            "/calls?state=dispatching",
            "moving",
        ),
        tile(
            "in doubt",
            sum("in_doubt"),
            "/calls?state=in_doubt",
            "doubt",
        ),
        tile("parked", sum("parked"), "/calls?state=parked", "bad"),
        Tile {
            more: seen.failed.more,
            ..tile(
                "failed, last hour",
                seen.failed.by_leaf.values().sum(),
                "/calls?state=failed",
                "bad",
            )
        },
    ]
}

/// Calls and batches count alike; of which kind they are is said where there are batches.
fn stuck_tile(calls: u64, batches: u64) -> Tile {
    let batches_say = match batches {
        1 => "1 batch".to_owned(),
        more => format!("{more} batches"),
    };
    let label = match (calls, batches) {
        (_, 0) => "stuck".to_owned(),
        (0, _) => format!("stuck: {batches_say}"),
        (1, _) => format!("stuck: 1 call, {batches_say}"),
        _ => format!("stuck: {calls} calls, {batches_say}"),
    };
    let to = if calls == 0 && batches > 0 {
        "/batches?stuck=true"
    } else {
        "/calls?stuck=true"
    };
    Tile {
        label,
        number: calls + batches,
        more: false,
        to: to.to_owned(),
        tone: if calls + batches > 0 { "bad" } else { "none" },
    }
}

fn line(call: &CallRow, seen: &Seen, show_bodies: bool) -> Line {
    Line::of(call).with_words(seen.words.get(&call.id), show_bodies)
}

fn card(count: &Count, seen: &Seen, show_bodies: bool) -> Option<Card> {
    let call = seen.calls.get(&count.first_stuck?)?;
    let said = explain_call(call, around(call));
    let mut to = format!(
        "/calls?stuck=true&leaf={}&state={}",
        percent(&count.leaf),
        percent(&count.state)
    );
    if let Some(reason) = &count.reason {
        to.push_str(&format!("&reason={}", percent(reason)));
    }
    let remedies = said.remedies.iter();
    Some(Card {
        call: line(call, seen, show_bodies),
        calls: count.stuck,
        why: said.why,
        buttons: remedies.map(|remedy| button(remedy, Some(call))).collect(),
        to,
    })
}

/// What is around a stuck call, as far as its row says.
fn around(call: &CallRow) -> Around {
    let fields = Fields::read(&call.json).unwrap_or_default();
    let now = super::view::now_of(&fields.cell("created_at"), call.age);
    let next = fields.text("next_attempt_at");
    let next: Option<Timestamp> = next.and_then(|next| next.parse().ok());
    let answered = ["last_status", "last_error"];
    Around {
        due_in: next.map(|next| next.duration_since(now).as_secs_f64()),
        unsent: call.attempts == 0 && answered.iter().all(|name| fields.text(name).is_none()),
        // A call behind a head is stuck only where the head has ended.
        head_ended: call.stuck && call.reason.as_deref() == Some("waits_for_order"),
        ..Around::default()
    }
}

fn batch_card(batch: &StuckBatch, seen: &Seen, show_bodies: bool) -> BatchCard {
    let call = batch.call.and_then(|id| seen.calls.get(&id));
    let said = call.map(|call| {
        let around = Around {
            may_run_again: batch.state == "compensating",
            ..around(call)
        };
        explain_call(call, around)
    });
    let remedies = match &said {
        Some(said) => said.remedies.clone(),
        None if batch.state == "open" => vec![Remedy::CancelBatch(batch.id)],
        None => Vec::new(),
    };
    let standing = match &batch.reason {
        Some(reason) => format!("{}: {reason}", batch.state),
        None => batch.state.clone(),
    };
    BatchCard {
        id: batch.id.to_string(),
        name: batch.name.clone(),
        standing,
        tone: if batch.reason.as_deref() == Some("teardown_incomplete") {
            "bad"
        } else {
            tone(&batch.state)
        },
        waits: age(batch.waits),
        why: in_short(&batch.state, batch.reason.as_deref()).to_owned(),
        call: call.map(|call| line(call, seen, show_bodies)),
        call_why: said.map(|said| said.why).unwrap_or_default(),
        buttons: remedies.iter().map(|remedy| button(remedy, call)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_batch_counts_as_stuck() {
        let told = |calls, batches| {
            let tile = stuck_tile(calls, batches);
            (tile.number, tile.label, tile.tone)
        };
        assert_eq!(told(0, 0), (0, "stuck".to_owned(), "none"));
        assert_eq!(told(0, 1), (1, "stuck: 1 batch".to_owned(), "bad"));
        let both = "stuck: 2 calls, 3 batches".to_owned();
        assert_eq!(told(2, 3), (5, both, "bad"));
    }
}
