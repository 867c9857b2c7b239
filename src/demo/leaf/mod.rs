//! The demo's leaves: three services of somebody else's, in one small HTTP server that keeps a ledger.
//!
//! A POST to a collection creates a resource, a GET of the resource shows it (404 where there is none). What an
//! effect is called in the ledger is the body's `description`: the demo's app gives the call's key there.
//!
//! | leaf | creates at | a resource | the same POST once more |
//! | --- | --- | --- | --- |
//! | git, a git host | `/git/repos` | `/git/repos/NAME` | 409: the name is taken |
//! | pay, a payment provider | `/pay/charges` | `/pay/charges/NUMBER` | one more charge; with the same `Idempotency-Key` the first answer again |
//! | host, a hosting API | `/host/sites`, `/host/domains` | `/host/sites/NUMBER` | one more |
//!
//! So git can be asked whether a call was executed, pay recognises it, and host does neither: the number by which
//! its resource could be asked for is in the answer that was lost.
//!
//! A body's `then` is a fault on request:
//!
//! | `then` | what the leaf does |
//! | --- | --- |
//! | `lose the request` | the first time: cuts the connection, executes nothing |
//! | `lose the answer` | the first time: executes it, and cuts the connection |
//! | `be busy` | the first two times: 503 with Retry-After, executes nothing |
//! | `refuse` | 422, always |
//! | `think` | the first time: executes it, and answers when the demo lets it, at the latest after 10 s |

mod books;
mod wire;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use self::{books::Books, wire::Answer};
use crate::shutdown::Tasks;

/// Longer than the sidecar waits for an answer.
const THINKS_AT_MOST: Duration = Duration::from_secs(10);

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
    /// Each thought ends with a permit.
    thoughts: Semaphore,
}

impl DemoLeaf {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let shared = Arc::new(Shared {
            books: Mutex::default(),
            thoughts: Semaphore::new(0),
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

    /// Lets those answer that think.
    pub(super) fn answer_now(&self, thoughts: usize) {
        self.shared.thoughts.add_permits(thoughts);
    }

    /// POSTs that arrived for this effect (`leaf description`), however they ended.
    pub(super) fn sent(&self, effect: &str) -> u32 {
        self.shared.books(|books| books.sent(effect))
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
                "POST" => {
                    let times = self.books(|books| books.note(&request));
                    let fault = request.body["then"].as_str().unwrap_or_default();
                    if fault == "lose the request" && times == 1 {
                        return Ok(());
                    }
                    let answer = match (fault, times) {
                        ("refuse", _) => books::error("422 Unprocessable Content", "not like that"),
                        ("be busy", ..3) => {
                            books::error("503 Service Unavailable", "busy").with("retry-after: 0")
                        }
                        _ => self.books(|books| books.create(&request)),
                    };
                    match (fault, times) {
                        ("lose the answer", 1) => return Ok(()),
                        ("think", 1) => self.think().await,
                        _ => {}
                    }
                    answer
                }
                _ => Answer::new("405 Method Not Allowed", serde_json::json!({})),
            };
            wire::write(&mut stream, method, &answer).await?;
        }
        Ok(())
    }

    async fn think(&self) {
        // Whether it was let or has thought for long enough: it answers.
        if let Ok(Ok(permit)) = timeout(THINKS_AT_MOST, self.thoughts.acquire()).await {
            permit.forget();
        }
    }
}
