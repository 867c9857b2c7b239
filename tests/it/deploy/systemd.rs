//! What systemd is told, heard on a socket of the test's own as systemd would.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::{
    process::Signal,
    time::{ClockId, clock_gettime},
};
use serde_json::json;

use crate::harness::{
    Bed,
    app::call,
    database::Database,
    folder::Folder,
    leaf::Gate,
    sidecar::Config,
    wait::{holds_for, until},
};

/// What was heard: a message is some lines.
struct Ear {
    /// For `NOTIFY_SOCKET`.
    name: String,
    heard: Arc<Mutex<Vec<String>>>,
    _folder: Folder,
}

impl Ear {
    fn of_a_file() -> Self {
        let folder = Folder::new();
        let path = folder.path().join("notify");
        let name = path.to_str().unwrap().to_owned();
        Self::with(name, UnixDatagram::bind(path).unwrap(), folder)
    }

    fn abstract_one() -> Self {
        let folder = Folder::new();
        let name = format!("leafhopper-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Self::with(format!("@{name}"), socket, folder)
    }

    fn with(name: String, socket: UnixDatagram, folder: Folder) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&heard);
        std::thread::spawn(move || {
            let mut message = [0; 4096];
            while let Ok(length) = socket.recv(&mut message) {
                let text = String::from_utf8_lossy(&message[..length]).into_owned();
                list.lock().unwrap().push(text);
            }
        });
        Self {
            name,
            heard,
            _folder: folder,
        }
    }

    fn all(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn count(&self, line: &str) -> usize {
        let has = |message: &&String| message.lines().any(|it| it == line);
        self.all().iter().filter(has).count()
    }

    async fn until(&self, line: &str, times: usize) {
        until(&format!("{line} was said {times} times"), async || {
            if self.count(line) >= times {
                Ok(())
            } else {
                Err(self.all())
            }
        })
        .await;
    }

    /// The value of the last line that begins so.
    fn value(&self, name: &str) -> Option<String> {
        let all = self.all();
        let mut lines = all.iter().flat_map(|message| message.lines());
        let line = lines.rfind(|line| line.starts_with(name));
        line.map(|line| line[name.len()..].to_owned())
    }
}

fn monotonic_usec() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

#[tokio::test]
async fn it_says_when_it_has_started_reads_again_and_stops() {
    let bed = Bed::new().await;
    let gate = Gate::closed();
    bed.leaf
        .always()
        .waits_before_the_answer(&gate)
        .answers(201);
    let ear = Ear::of_a_file();
    let config = bed.config("").dispatch("shutdown_grace = \"7s\"");
    let sidecar = config.sidecar().environment("NOTIFY_SOCKET", &ear.name);
    let mut sidecar = sidecar.start().await;
    ear.until("READY=1", 1).await;
    ear.until("STATUS=claims and records work", 1).await;

    // Also a configuration that is refused ends the reloading.
    let refused = bed.config("no_such_setting = 1");
    for (times, config) in [(1, &config), (2, &refused)] {
        sidecar.rewrite(config);
        let before = monotonic_usec();
        sidecar.signal(Signal::HUP);
        ear.until("RELOADING=1", times).await;
        ear.until("READY=1", times + 1).await;
        let said: i64 = ear.value("MONOTONIC_USEC=").unwrap().parse().unwrap();
        let between = before..=monotonic_usec();
        assert!(between.contains(&said), "{said} is not in {between:?}");
    }

    bed.app.insert(call("leaf").body(json!({}))).await;
    gate.until_arrived(1).await;
    sidecar.signal(Signal::TERM);
    ear.until("STOPPING=1", 1).await;
    assert_eq!(ear.value("EXTEND_TIMEOUT_USEC=").unwrap(), "32000000");
    gate.open();
    assert_eq!(sidecar.exit().await.code(), Some(0));
    assert_eq!(ear.count("READY=1"), 3, "{:?}", ear.all());
    assert_eq!(ear.count("WATCHDOG=1"), 0, "nobody asked for it");
}

#[tokio::test]
async fn it_feeds_a_watchdog_until_its_end() {
    let bed = Bed::new().await;
    let ear = Ear::abstract_one();
    let sidecar = bed.config("").sidecar();
    let sidecar = sidecar.environment("NOTIFY_SOCKET", &ear.name);
    let mut sidecar = sidecar.environment("WATCHDOG_USEC", "400000").start().await;
    ear.until("WATCHDOG=1", 3).await;
    sidecar.signal(Signal::STOP);
    until("it is stopped", async || {
        sidecar.is_stopped().then_some(()).ok_or(())
    })
    .await;
    let fed = ear.count("WATCHDOG=1");
    let quiet = async || match ear.count("WATCHDOG=1") {
        now if now <= fed + 1 => Ok(()),
        now => Err(now),
    };
    let what = "a stopped one feeds nothing";
    holds_for(Duration::from_millis(600), what, quiet).await;
    sidecar.signal(Signal::CONT);
    ear.until("WATCHDOG=1", fed + 2).await;
    assert_eq!(sidecar.stop().await.code(), Some(0));
    ear.until("STOPPING=1", 1).await;
    assert_eq!(ear.count("STOPPING=1"), 1);
}

#[tokio::test]
async fn a_database_that_is_away_keeps_nobody_waiting_for_the_unit() {
    let bed = Bed::new().await;
    let (way, config) = bed.behind_a_proxy("").await;
    way.cut();
    let ear = Ear::of_a_file();
    let sidecar = config.sidecar().environment("NOTIFY_SOCKET", &ear.name);
    let sidecar = sidecar.environment("WATCHDOG_USEC", "400000").launch();
    ear.until("READY=1", 1).await;
    ear.until("WATCHDOG=1", 2).await;
    until("it says what it waits for", async || {
        let status = ear.value("STATUS=").unwrap_or_default();
        let says = status.contains("the database can't be reached");
        if says { Ok(()) } else { Err(ear.all()) }
    })
    .await;
    // What is asked for meanwhile is done.
    sidecar.rewrite(&config.clone().leaf("new", &bed.leaf.url(), ""));
    sidecar.signal(Signal::HUP);
    ear.until("RELOADING=1", 1).await;
    let id = bed.app.insert(call("new").body(json!({"key": "a"}))).await;
    way.restore();
    bed.app.until_state(id, "confirmed").await;
    ear.until("STATUS=claims and records work", 1).await;
}

#[tokio::test]
async fn what_a_person_has_to_mend_is_no_start() {
    let database = Database::empty().await;
    let ear = Ear::of_a_file();
    let config = Config::new(&database.url);
    let sidecar = config.sidecar().environment("NOTIFY_SOCKET", &ear.name);
    let mut sidecar = sidecar.launch();
    assert_eq!(sidecar.exit().await.code(), Some(1), "there is no schema");
    assert_eq!(ear.count("READY=1"), 0, "{:?}", ear.all());
}
