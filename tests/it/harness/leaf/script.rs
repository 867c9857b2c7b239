//! What a leaf can be told to do.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::watch;

use super::{Request, Shared};

/// Which first answers a leaf with idempotency keys gives again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remembers {
    /// Those of executed requests; a refused one can be sent again.
    Successes,
    /// All of them.
    All,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// `None`: `{"id": N, "key": KEY}` where there was an effect, else nothing.
    pub(crate) body: Option<Vec<u8>>,
}

impl Reply {
    /// With the leaf's usual body.
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: None,
        }
    }

    /// With a JSON body.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::bytes(status, body.to_string()).header("content-type", "application/json")
    }

    /// With any body.
    pub(crate) fn bytes(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: Some(body.into()),
            ..Self::new(status)
        }
    }

    /// With one more header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl From<u16> for Reply {
    fn from(status: u16) -> Self {
        Self::new(status)
    }
}

/// Holds requests until it is opened; a test sees them come.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    state: Arc<watch::Sender<(usize, bool)>>,
}

impl Gate {
    /// A closed one.
    pub(crate) fn closed() -> Self {
        Self {
            state: Arc::new(watch::Sender::new((0, false))),
        }
    }

    /// Lets everybody through, from now on.
    pub(crate) fn open(&self) {
        self.state.send_modify(|(_, open)| *open = true);
    }

    /// Waits until that many requests have come to the gate.
    pub(crate) async fn until_arrived(&self, count: usize) {
        super::super::wait::until(&format!("{count} requests are at the gate"), async || {
            let (arrived, _) = *self.state.borrow();
            if arrived >= count {
                Ok(())
            } else {
                Err(arrived)
            }
        })
        .await;
    }

    pub(super) async fn pass(&self) {
        self.state.send_modify(|(arrived, _)| *arrived += 1);
        // An error means that nobody is left who could open it.
        self.state
            .subscribe()
            .wait_for(|(_, open)| *open)
            .await
            .ok();
    }
}

/// How an answer ends up.
#[derive(Debug, Clone)]
pub(crate) enum Delivery {
    /// It arrives.
    Whole,
    /// The connection is reset before the body is read; nothing can be executed.
    ResetUnread,
    /// The connection is reset.
    Reset,
    /// The connection is closed without a byte.
    Closed,
    /// Nothing comes, for as long as the leaf lives.
    Hangs,
    /// Half the body comes, then nothing more.
    StallsMidBody,
    /// Half the body comes, then the connection is closed.
    Truncated,
    /// These bytes come, then the connection is closed.
    Raw(Vec<u8>),
}

/// See [`Leaf::chooses`](super::Leaf::chooses).
pub(crate) type Chooser = Box<dyn FnMut(&Request) -> Option<Rule> + Send>;

/// What is done with the requests that match.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    path: String,
    method: Option<String>,
    key: Option<String>,
    skip: usize,
    times: Option<usize>,
    pub(super) executes: bool,
    pub(super) unique: bool,
    pub(super) gate_before: Option<Gate>,
    pub(super) gate_after: Option<Gate>,
    pub(super) takes: Duration,
    pub(super) reply: Reply,
    pub(super) delivery: Delivery,
}

impl Rule {
    /// For every request: it is executed, and answered with 201.
    pub(crate) fn new() -> Self {
        Self {
            path: "/".to_owned(),
            method: None,
            key: None,
            skip: 0,
            times: None,
            executes: true,
            unique: false,
            gate_before: None,
            gate_after: None,
            takes: Duration::ZERO,
            reply: Reply::new(201),
            delivery: Delivery::Whole,
        }
    }

    /// The effect is not executed.
    pub(crate) fn does_nothing(mut self) -> Self {
        self.executes = false;
        self
    }

    /// An effect that exists is not executed again; the answer is 409.
    pub(crate) fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// So long, before the effect, which takes place whoever is still there to hear of it.
    pub(crate) fn takes(mut self, time: Duration) -> Self {
        self.takes = time;
        self
    }

    /// Another answer.
    pub(crate) fn replies(mut self, reply: impl Into<Reply>) -> Self {
        self.reply = reply.into();
        self
    }

    /// Another way for the answer.
    pub(crate) fn delivers(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Whether it is for this request; one that it is for is counted.
    pub(super) fn takes_on(&mut self, request: &Request) -> bool {
        let below = request.path.strip_prefix(self.path.trim_end_matches('/'));
        let is_below = below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
        let is_meant = is_below
            && self
                .method
                .as_ref()
                .is_none_or(|method| *method == request.method)
            && self.key.as_ref().is_none_or(|key| *key == request.key);
        if !is_meant || self.times == Some(0) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(left) = &mut self.times {
            *left -= 1;
        }
        true
    }

    /// Whether it can be chosen before the body is read.
    pub(super) fn leaves_the_body_unread(&self) -> bool {
        matches!(self.delivery, Delivery::ResetUnread)
    }
}

/// A rule that is being written. The last word is the delivery, which puts it into force; the newest rule
/// that matches wins.
#[must_use = "a rule is in force once its delivery is said"]
pub(crate) struct On<'a> {
    shared: &'a Shared,
    rule: Rule,
}

impl<'a> On<'a> {
    pub(super) fn new(shared: &'a Shared, path: &str) -> Self {
        let path = path.to_owned();
        let rule = Rule {
            path,
            ..Rule::new()
        };
        Self { shared, rule }
    }

    fn with(mut self, change: impl FnOnce(&mut Rule)) -> Self {
        change(&mut self.rule);
        self
    }

    /// Only requests with this method.
    pub(crate) fn method(self, method: &str) -> Self {
        self.with(|rule| rule.method = Some(method.to_owned()))
    }

    /// Only requests about this effect.
    pub(crate) fn key(self, key: &str) -> Self {
        self.with(|rule| rule.key = Some(key.to_owned()))
    }

    /// Only the first so many of them.
    pub(crate) fn times(self, times: usize) -> Self {
        self.with(|rule| rule.times = Some(times))
    }

    /// Only the n-th of them, from 1.
    pub(crate) fn nth(self, nth: usize) -> Self {
        self.with(|rule| (rule.skip, rule.times) = (nth - 1, Some(1)))
    }

    /// The effect is not executed. (It is, otherwise.)
    pub(crate) fn does_nothing(self) -> Self {
        self.with(|rule| rule.executes = false)
    }

    /// Each waits there before the effect.
    pub(crate) fn waits_before_the_effect(self, gate: &Gate) -> Self {
        self.with(|rule| rule.gate_before = Some(gate.clone()))
    }

    /// Each waits there between effect and answer.
    pub(crate) fn waits_before_the_answer(self, gate: &Gate) -> Self {
        self.with(|rule| rule.gate_after = Some(gate.clone()))
    }

    /// So long for each, before the effect.
    pub(crate) fn takes(self, time: Duration) -> Self {
        self.with(|rule| rule.takes = time)
    }

    /// The answer arrives.
    pub(crate) fn answers(self, reply: impl Into<Reply>) {
        self.ends(Delivery::Whole, reply.into());
    }

    /// The answer is a refusal or an error, and nothing is executed.
    pub(crate) fn refuses(self, reply: impl Into<Reply>) {
        self.does_nothing().answers(reply);
    }

    /// The connection is reset after the head, before the body is read. Nothing is executed. Such a rule
    /// can't tell keys that are in the body.
    pub(crate) fn resets_before_reading(self) {
        self.does_nothing()
            .ends(Delivery::ResetUnread, Reply::new(201));
    }

    /// The request is read; then the connection is reset.
    pub(crate) fn resets(self) {
        self.ends(Delivery::Reset, Reply::new(201));
    }

    /// The request is read; then the connection is closed without a byte.
    pub(crate) fn closes(self) {
        self.ends(Delivery::Closed, Reply::new(201));
    }

    /// The request is read; no answer comes.
    pub(crate) fn hangs(self) {
        self.ends(Delivery::Hangs, Reply::new(201));
    }

    /// The head and half the body come; then nothing.
    pub(crate) fn stalls_mid_body(self, reply: impl Into<Reply>) {
        self.ends(Delivery::StallsMidBody, reply.into());
    }

    /// The head and half the body come; then the end.
    pub(crate) fn truncates(self, reply: impl Into<Reply>) {
        self.ends(Delivery::Truncated, reply.into());
    }

    /// These bytes come, whatever they are; then the end.
    pub(crate) fn answers_raw(self, bytes: impl Into<Vec<u8>>) {
        self.ends(Delivery::Raw(bytes.into()), Reply::new(201));
    }

    fn ends(mut self, delivery: Delivery, reply: Reply) {
        self.rule.delivery = delivery;
        self.rule.reply = reply;
        self.shared.books().rules.push(self.rule);
    }
}
