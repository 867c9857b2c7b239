//! The service that all systems call: keep-alive, 201 with a small body, and a record of what arrived when.
//!
//! It is one thread without a lock that anybody else wants, since it shares the machine with what is measured.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const CREATED: &str = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"id\": 123}";
const FOUND: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"id\": 123}";
const ABSENT: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

/// The timer fires at the next whole millisecond, so this much is taken off a delay for it to be right on average.
const TIMER_IS_LATE: Duration = Duration::from_micros(500);

/// How requests are answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Manner {
    AtOnce,
    After(Duration),
    Never,
}

/// What arrived since [`Leaf::record`]. Times are nanoseconds since the leaf's start, 0 where there was none.
#[derive(Debug)]
pub(crate) struct Record {
    manner: Manner,
    /// Requests that arrived, probes not counted.
    pub(crate) arrived: AtomicU64,
    /// Of the id that is the index: how often it arrived, was executed, and when it first arrived.
    pub(crate) times: Vec<AtomicU32>,
    executed: Vec<AtomicU32>,
    answered: AtomicU64,
    pub(crate) first_at: Vec<AtomicU64>,
    /// When the n-th request arrived.
    pub(crate) timeline: Vec<AtomicU64>,
    /// How long the delayed answers took together, and how many they were.
    delayed: (AtomicU64, AtomicU64),
}

impl Record {
    fn new(manner: Manner, ids: usize) -> Self {
        let zeros = || (0..=ids).map(|_| AtomicU64::new(0)).collect();
        Self {
            manner,
            arrived: AtomicU64::new(0),
            times: (0..=ids).map(|_| AtomicU32::new(0)).collect(),
            executed: (0..=ids).map(|_| AtomicU32::new(0)).collect(),
            first_at: zeros(),
            timeline: zeros(),
            answered: AtomicU64::new(0),
            delayed: (AtomicU64::new(0), AtomicU64::new(0)),
        }
    }

    fn arrival(&self, id: usize, now: u64) {
        let number = self.arrived.fetch_add(1, Relaxed);
        if let Some(slot) = usize::try_from(number)
            .ok()
            .and_then(|n| self.timeline.get(n))
        {
            slot.store(now, Relaxed);
        }
        if let Some(times) = self.times.get(id)
            && times.fetch_add(1, Relaxed) == 0
        {
            self.first_at[id].store(now, Relaxed);
        }
    }

    /// When the n-th request arrived, from 0 on.
    pub(crate) fn at(&self, number: u64) -> u64 {
        self.timeline[usize::try_from(number).unwrap()].load(Relaxed)
    }

    /// Requests a second between the n-th and the m-th.
    pub(crate) fn rate_between(&self, from: u64, to: u64) -> f64 {
        crate::stats::per_second(to - from, Duration::from_nanos(self.at(to) - self.at(from)))
    }

    /// Requests that it is working on.
    pub(crate) fn in_flight(&self) -> u64 {
        let answered = self.answered.load(Relaxed);
        self.arrived.load(Relaxed).saturating_sub(answered)
    }

    /// Ids that arrived at least once.
    pub(crate) fn distinct(&self) -> u64 {
        self.times
            .iter()
            .filter(|times| times.load(Relaxed) > 0)
            .count() as u64
    }

    /// How long a delayed answer took on average.
    pub(crate) fn delay_mean(&self) -> Option<Duration> {
        let (sum, count) = (self.delayed.0.load(Relaxed), self.delayed.1.load(Relaxed));
        (count > 0).then(|| Duration::from_nanos(sum / count))
    }
}

/// A leaf on a port of its own, until the process ends.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) port: u16,
    began: Instant,
    current: Arc<Mutex<Arc<Record>>>,
}

impl Leaf {
    pub(crate) fn start() -> Self {
        let (tell, port) = std::sync::mpsc::channel();
        let began = Instant::now();
        let current = Arc::new(Mutex::new(Arc::new(Record::new(Manner::AtOnce, 0))));
        let shared = Arc::clone(&current);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                tell.send(listener.local_addr().unwrap().port()).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    stream.set_nodelay(true).unwrap();
                    tokio::spawn(serve(stream, Arc::clone(&shared), began));
                }
            });
        });
        Self {
            port: port.recv().unwrap(),
            began,
            current,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Forgets what was; from now on ids from 1 to `ids` are told apart.
    pub(crate) fn record(&self, manner: Manner, ids: u64) -> Arc<Record> {
        let record = Arc::new(Record::new(manner, usize::try_from(ids).unwrap()));
        *self.current.lock().unwrap() = Arc::clone(&record);
        record
    }

    /// Nanoseconds since its start, as its records have them.
    pub(crate) fn now(&self) -> u64 {
        nanoseconds(self.began)
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap()
}

async fn serve(
    mut stream: TcpStream,
    current: Arc<Mutex<Arc<Record>>>,
    began: Instant,
) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let (head, whole) = loop {
            if let Some(lengths) = complete(&buffer) {
                break lengths;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let record = Arc::clone(&current.lock().unwrap());
        let answer = if buffer.starts_with(b"GET ") {
            asked(&record, &buffer[..head])
        } else {
            let id = number_after(&buffer[head..whole], b"\"i\":");
            record.arrival(id, nanoseconds(began));
            match record.manner {
                Manner::AtOnce => {}
                Manner::After(delay) => wait(&record, delay).await,
                Manner::Never => std::future::pending().await,
            }
            record.answered.fetch_add(1, Relaxed);
            // Whether or not somebody still waits for the answer.
            if let Some(executed) = record.executed.get(id) {
                executed.fetch_add(1, Relaxed);
            }
            CREATED
        };
        buffer.drain(..whole);
        stream.write_all(answer.as_bytes()).await?;
    }
}

async fn wait(record: &Record, delay: Duration) {
    let began = Instant::now();
    tokio::time::sleep(delay.saturating_sub(TIMER_IS_LATE)).await;
    record.delayed.0.fetch_add(nanoseconds(began), Relaxed);
    record.delayed.1.fetch_add(1, Relaxed);
}

/// Does the effect `/effects/ID` exist?
fn asked(record: &Record, head: &[u8]) -> &'static str {
    let id = number_after(head, b"/effects/");
    let executed = record.executed.get(id);
    if id > 0 && executed.is_some_and(|executed| executed.load(Relaxed) > 0) {
        FOUND
    } else {
        ABSENT
    }
}

/// The lengths of the head and of the whole request, once it is all there.
fn complete(buffer: &[u8]) -> Option<(usize, usize)> {
    let head = find(buffer, b"\r\n\r\n")? + 4;
    let length = buffer[..head]
        .split(|&byte| byte == b'\n')
        .find(|line| line.len() > 15 && line[..15].eq_ignore_ascii_case(b"content-length:"))
        .map_or(0, |line| number_after(line, b":"));
    (buffer.len() >= head + length).then_some((head, head + length))
}

/// The number that follows these bytes, or 0.
fn number_after(text: &[u8], what: &[u8]) -> usize {
    let Some(at) = find(text, what) else { return 0 };
    let digits = text[at + what.len()..]
        .iter()
        .skip_while(|byte| **byte == b' ');
    digits
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |number, byte| number * 10 + usize::from(byte - b'0'))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|part| part == what)
}
