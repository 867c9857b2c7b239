//! The demo's leaves: five services of somebody else's, in one small HTTP server that keeps a ledger.
//!
//! A POST to a collection creates a resource, a GET of the resource shows it, a DELETE removes it (404 where there is
//! none). What an effect is called in the ledger is the body's `description`: the demo's app gives the call's key there.
//!
//! | leaf | creates at | a resource | the same request once more |
//! | --- | --- | --- | --- |
//! | git, a git host | `/git/repos` | `/git/repos/NAME` | 409: the name is taken |
//! | pay, a payment provider | `/pay/charges` | `/pay/charges/NUMBER` | one more charge; with the same `Idempotency-Key` the first answer again |
//! | host, a hosting API | `/host/sites`, `/host/domains` | `/host/sites/NUMBER` | one more |
//! | dns, a DNS provider | PUT of the resource | `/dns/records/NAME` | the same state |
//! | mail, a mail provider | `/mail/messages` | `/mail/messages/NUMBER` | as pay |
//!
//! So git can be asked whether a call was executed, pay and mail recognise it, for dns it makes no difference, and host
//! does none of these: the number by which its resource could be asked for is in the answer that was lost. To an
//! address that is none, dns says 422.
//!
//! A body's `then` is a fault on request:
//!
//! | `then` | what the leaf does |
//! | --- | --- |
//! | `lose the request` | the first time: cuts the connection, executes nothing |
//! | `lose the answer` | the first time: executes it, and cuts the connection |
//! | `be busy` | the first two times: 503 with Retry-After, executes nothing |
//! | `refuse` | 422, always |
//! | `think` | the first time: executes it, and answers when the demo lets it, at the latest after 25 s |
//!
//! The demo lets others think without their knowing.

mod books;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

use self::{
    books::Books,
    wire::{Answer, Request},
};
use crate::shutdown::Tasks;

/// Less than the sidecar waits for host, which nobody could ask.
const THINKS_AT_MOST: Duration = Duration::from_secs(25);

/// The running server.
#[derive(Debug)]
pub(super) struct DemoLeaf {
    port: u16,
    shared: Arc<Shared>,
    _tasks: Tasks,
}

#[derive(Debug)]
struct Shared {
    books: Mutex<Books>,
    /// The effects of which nobody is told yet.
    thoughts: watch::Sender<BTreeSet<String>>,
}

impl DemoLeaf {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let shared = Arc::new(Shared {
            books: Mutex::default(),
            thoughts: watch::Sender::default(),
        });
        let leaf = Self {
            port: listener.local_addr()?.port(),
            shared: Arc::clone(&shared),
            _tasks: Tasks::default(),
        };
        let tasks = leaf._tasks.clone();
        leaf._tasks.spawn("demo leaf", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                tasks.spawn("demo connection", async move {
                    // A connection that breaks is what the demo is about.
                    shared.serve(stream).await.unwrap_or_default();
                });
            }
        });
        Ok(leaf)
    }

    /// In front of the leaves' names.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Lets what arrives for this effect be executed, and not be answered until [`Self::answer`].
    pub(super) fn think_about(&self, effect: &str) {
        self.shared.ponder(effect);
    }

    /// Lets the leaf answer that thinks about this effect.
    pub(super) fn answer(&self, effect: &str) {
        self.shared.thoughts.send_modify(|thoughts| {
            thoughts.remove(effect);
        });
    }

    /// POSTs and PUTs that arrived for this effect (`leaf description`), however they ended.
    pub(super) fn sent(&self, effect: &str) -> u32 {
        self.shared.books(|books| books.sent(effect))
    }

    /// The idempotency keys that came with them, each once.
    pub(super) fn keys(&self, effect: &str) -> Vec<String> {
        self.shared.books(|books| books.keys(effect))
    }

    /// The paths of what was deleted, in that order.
    pub(super) fn deleted(&self) -> Vec<String> {
        self.shared.books(|books| books.deleted())
    }

    /// GETs that arrived for this resource.
    pub(super) fn asked(&self, path: &str) -> u32 {
        self.shared.books(|books| books.asked(path))
    }

    /// All effects, and how often each exists.
    pub(super) fn effects(&self) -> BTreeMap<String, usize> {
        self.shared.books(|books| books.effects())
    }
}

impl Shared {
    fn books<T>(&self, look: impl FnOnce(&mut Books) -> T) -> T {
        look(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(request) = wire::read(&mut stream).await? {
            let method = request.method.as_str();
            let answer = match method {
                "GET" | "HEAD" => self.books(|books| books.show(&request.path)),
                "POST" | "PUT" => match self.make(&request).await {
                    Some(answer) => answer,
                    None => return Ok(()),
                },
                "DELETE" => self.books(|books| books.delete(&request.path)),
                _ => Answer::new("405 Method Not Allowed", serde_json::json!({})),
            };
            wire::write(&mut stream, method, &answer).await?;
        }
        Ok(())
    }

    /// `None` where it ends without an answer.
    async fn make(&self, request: &Request) -> Option<Answer> {
        let times = self.books(|books| books.note(request));
        let fault = request.body["then"].as_str().unwrap_or_default();
        match (fault, times) {
            ("lose the request", 1) => return None,
            ("think", 1) => self.ponder(&request.effect()),
            _ => {}
        }
        let answer = match (fault, times) {
            ("refuse", _) => books::error("422 Unprocessable Content", "not like that"),
            ("be busy", ..3) => {
                books::error("503 Service Unavailable", "busy").with("retry-after: 0")
            }
            _ if request.method == "PUT" => self.books(|books| books.put(request)),
            _ => self.books(|books| books.create(request)),
        };
        if (fault, times) == ("lose the answer", 1) {
            return None;
        }
        self.think(&request.effect()).await;
        Some(answer)
    }

    fn ponder(&self, effect: &str) {
        self.thoughts.send_modify(|thoughts| {
            thoughts.insert(effect.to_owned());
        });
    }

    /// Thinks about it, if it is something to think about.
    async fn think(&self, effect: &str) {
        let mut thoughts = self.thoughts.subscribe();
        let answered = thoughts.wait_for(|thoughts| !thoughts.contains(effect));
        // Whether it was let or has thought for long enough: it answers.
        drop(timeout(THINKS_AT_MOST, answered).await);
    }
}
