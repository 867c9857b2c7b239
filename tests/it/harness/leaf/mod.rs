//! A scripted leaf: a remote service that keeps a ledger of what it was asked and what it did.
//!
//! Two things are independent, and both can be scripted for each request: whether the effect is executed, and
//! whether the answer arrives. Without a script it executes each request once and answers 201; it can be asked
//! at `GET /effects/KEY`, and `DELETE /effects/KEY` undoes.
//!
//! Read on in `script.rs` (what can be scripted) and `ledger.rs` (what can be asked afterwards).

mod ledger;
mod script;
mod wire;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{net::TcpListener, task::JoinSet};

pub(crate) use ledger::Request;
pub(crate) use script::{Chooser, Delivery, Gate, On, Remembers, Reply, Rule};

use ledger::Ledger;

use super::wait::until;

/// A running leaf; it ends with this value.
pub(crate) struct Leaf {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

/// What the connections share.
#[derive(Default)]
pub(super) struct Shared {
    books: Mutex<Books>,
}

/// Script and ledger, changed together.
#[derive(Default)]
struct Books {
    ledger: Ledger,
    /// The newest rule that matches wins.
    rules: Vec<Rule>,
    /// Asked where no rule matches.
    chooser: Option<Chooser>,
    idempotency: Option<(String, Remembers)>,
    /// Connections that are still to be reset before a byte is read.
    resets_at_accept: usize,
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }
}

impl Leaf {
    /// Listens on 127.0.0.1.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(wire::accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// The `base_url` for the configuration.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Begins a rule for the requests to that path, or to one below it.
    pub(crate) fn on(&self, path: &str) -> On<'_> {
        On::new(&self.shared, path)
    }

    /// Begins a rule for every request.
    pub(crate) fn always(&self) -> On<'_> {
        On::new(&self.shared, "/")
    }

    /// From now on, a second request with the same value of this header gets the first one's answer and has
    /// no effect.
    pub(crate) fn honours(&self, header: &str, remembers: Remembers) {
        self.shared.books().idempotency = Some((header.to_ascii_lowercase(), remembers));
    }

    /// Gives a rule to each request that none is for, or leaves it to the leaf's usual ways.
    pub(crate) fn chooses(&self, choose: impl FnMut(&Request) -> Option<Rule> + Send + 'static) {
        self.shared.books().chooser = Some(Box::new(choose));
    }

    /// Resets this many of the next connections before a byte of them is read.
    pub(crate) fn reset_connections(&self, count: usize) {
        self.shared.books().resets_at_accept = count;
    }

    /// Forgets the script; the ledger stays.
    pub(crate) fn behaves(&self) {
        let mut books = self.shared.books();
        books.rules.clear();
        books.chooser = None;
        books.resets_at_accept = 0;
    }

    /// Every request so far, in the order of arrival.
    pub(crate) fn all_requests(&self) -> Vec<Request> {
        self.shared.books().ledger.requests.clone()
    }

    /// When each request so far had arrived: for tests that look often at a leaf that is asked much.
    pub(crate) fn arrivals(&self) -> Vec<tokio::time::Instant> {
        let books = self.shared.books();
        books.ledger.requests.iter().map(|it| it.at).collect()
    }

    /// The requests for an effect key.
    pub(crate) fn requests(&self, key: &str) -> Vec<Request> {
        let books = self.shared.books();
        books
            .ledger
            .requests
            .iter()
            .filter(|request| request.key == key)
            .cloned()
            .collect()
    }

    /// How often the effect was executed, ever.
    pub(crate) fn effects(&self, key: &str) -> usize {
        self.shared.books().ledger.effects(key)
    }

    /// How many of these effects have not been undone.
    pub(crate) fn standing(&self, key: &str) -> usize {
        self.shared.books().ledger.standing(key)
    }

    /// Every key that has had an effect, with how many.
    pub(crate) fn all_effects(&self) -> std::collections::BTreeMap<String, usize> {
        self.shared.books().ledger.all_effects()
    }

    /// An effect that came from somewhere else: somebody clicked in the leaf's own page.
    pub(crate) fn has_already(&self, key: &str) {
        self.shared.books().ledger.execute(key);
    }

    /// The most requests that were in work at the same time; of one key, or of all.
    pub(crate) fn most_at_once(&self, key: Option<&str>) -> usize {
        self.shared.books().ledger.most_at_once(key)
    }

    /// Waits for that many requests of a key; gives them.
    pub(crate) async fn until_requests(&self, key: &str, count: usize) -> Vec<Request> {
        until(
            &format!("the leaf has got {count} requests for {key}"),
            async || {
                let requests = self.requests(key);
                if requests.len() >= count {
                    Ok(requests)
                } else {
                    Err(requests)
                }
            },
        )
        .await
    }

    /// Panics unless each of these keys has had exactly one effect.
    pub(crate) fn assert_each_effect_once<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) {
        let effects = self.all_effects();
        let (mut lost, mut doubled) = (Vec::new(), Vec::new());
        for key in keys {
            match effects.get(key.as_ref()) {
                Some(1) => {}
                None => lost.push(key.as_ref().to_owned()),
                Some(count) => doubled.push(format!("{} ({count} times)", key.as_ref())),
            }
        }
        assert!(
            lost.is_empty() && doubled.is_empty(),
            "effects lost: {lost:?}; more than once: {doubled:?}"
        );
    }
}
