//! A server that `.ci/leaves` has installed, as a process on a port of its own.

use std::{
    fs::{File, Permissions},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use reqwest::{Client, Method, StatusCode};
use serde_json::Value;

use crate::harness::{folder::Folder, wait::until};

/// It runs in a folder of its own; both end with this value.
pub(super) struct Server {
    child: Child,
    folder: Folder,
    address: String,
    client: Client,
    /// Header and value that it wants to be asked with.
    authorization: Option<String>,
}

/// The folder that `.ci/leaves` fills.
fn installed() -> PathBuf {
    let folder = std::env::var_os("LEAFHOPPER_LEAVES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/leaves"),
        PathBuf::from,
    );
    assert!(
        folder.join("installed").exists(),
        "there are no servers in {}: run `make leaves`, or `.ci/leaves` to install them",
        folder.display()
    );
    folder
}

/// Python with a module's arguments.
pub(super) fn python(arguments: &[&str]) -> Vec<String> {
    let program = installed().join("python/bin/python");
    words(program, arguments)
}

/// Node with a package's script and its arguments.
pub(super) fn node(script: &str, arguments: &[&str]) -> Vec<String> {
    let script = installed().join("node_modules").join(script);
    let mut words = words(PathBuf::from("node"), &[]);
    words.push(script.to_string_lossy().into_owned());
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    words
}

/// Apache; of root it would want to be told who else to be.
pub(super) fn apache(arguments: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    if rustix::process::getuid().is_root() {
        let as_somebody =
            "setpriv --reuid www-data --regid www-data --clear-groups --pdeathsig KILL --";
        words.extend(as_somebody.split(' ').map(str::to_owned));
    }
    // A user's PATH need not lead there.
    words.push("/usr/sbin/apache2".to_owned());
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    words
}

fn words(program: PathBuf, arguments: &[&str]) -> Vec<String> {
    let program = program.to_string_lossy().into_owned();
    let arguments = arguments.iter().map(|word| (*word).to_owned());
    std::iter::once(program).chain(arguments).collect()
}

impl Server {
    /// Starts it with these files, where `PORT` is a free port and `HERE` its folder, and waits until it answers.
    pub(super) async fn start(words: &[String], files: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let port = free_port().to_string();
        let here = folder.path().to_string_lossy().into_owned();
        let filled = |text: &str| text.replace("PORT", &port).replace("HERE", &here);
        for (name, text) in files {
            folder.write(name, &filled(text));
        }
        std::fs::create_dir(folder.path().join("data")).unwrap();
        // It may write there by another name, too.
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.path().join("log"));
        let log = log.unwrap();
        for path in ["", "data", "log"] {
            let all = Permissions::from_mode(0o777);
            std::fs::set_permissions(folder.path().join(path), all).unwrap();
        }
        // The kernel ends it with this thread, whatever becomes of the test.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        command.args(words.iter().map(|word| filled(word)));
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut server = Self {
            child: command.spawn().unwrap(),
            folder,
            address: format!("http://127.0.0.1:{port}"),
            client: Client::builder().no_proxy().build().unwrap(),
            authorization: None,
        };
        until("the server answers", async || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("it has ended, {status}:\n{}", server.log());
            }
            let asked = server.client.get(&server.address).send().await;
            asked
                .map(drop)
                .map_err(|error| format!("{error}\n{}", server.log()))
        })
        .await;
        server
    }

    /// Asked with this from here on.
    pub(super) fn authorized(mut self, value: &str) -> Self {
        self.authorization = Some(value.to_owned());
        self
    }

    /// Where it is.
    pub(super) fn url(&self) -> &str {
        &self.address
    }

    /// An empty folder of its own, for what it keeps.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What it has said of itself, and of each request.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// How many lines of its log hold these words.
    pub(super) fn told_of(&self, words: &str) -> usize {
        let log = self.log();
        log.lines().filter(|line| line.contains(words)).count()
    }

    /// A request that doesn't go through leafhopper.
    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, String)>,
    ) -> (StatusCode, String) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let url = format!("{}{path}", self.address);
        let mut request = self.client.request(method, url);
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        if let Some((content_type, body)) = body {
            request = request.header("content-type", content_type).body(body);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// What it has at a path.
    pub(super) async fn text(&self, path: &str) -> String {
        let (status, text) = self.ask("GET", path, None).await;
        assert!(status.is_success(), "{path}: {status}: {text}");
        text
    }

    /// The same as JSON.
    pub(super) async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(path).await).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}

/// None of these servers can be told to take any port and to say which.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
