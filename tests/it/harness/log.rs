//! What a sidecar has written to stderr. It is a file: what was written before something else that a test has seen is
//! there to be read, however busy the machine is.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
    process::Stdio,
    sync::Mutex,
};

/// As much of it as a failing test shows.
const TAIL_LINES: usize = 60;

/// The log of one sidecar, over all its starts.
#[derive(Debug)]
pub(super) struct Log {
    end: File,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    file: File,
    /// A line that is not written to its end yet.
    rest: Vec<u8>,
    lines: Vec<String>,
}

impl Log {
    /// An empty one, in that file.
    pub(super) fn new(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        let end = options.create_new(true).append(true).open(path).unwrap();
        let seen = Seen {
            file: File::open(path).unwrap(),
            rest: Vec::new(),
            lines: Vec::new(),
        };
        Self {
            end,
            seen: Mutex::new(seen),
        }
    }

    /// For a process that writes to its end.
    pub(super) fn stdio(&self) -> Stdio {
        self.end.try_clone().unwrap().into()
    }

    /// A line of the test's own.
    pub(super) fn push(&self, line: &str) {
        (&self.end)
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    /// Gives all lines so far to it.
    pub(super) fn read<T>(&self, look: impl FnOnce(&[String]) -> T) -> T {
        let mut seen = self.seen.lock().unwrap();
        seen.go_on();
        look(&seen.lines)
    }

    /// Its last lines.
    pub(super) fn tail(&self) -> String {
        self.read(|lines| lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
    }
}

impl Seen {
    fn go_on(&mut self) {
        let Self { file, rest, lines } = self;
        file.read_to_end(rest).unwrap();
        let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        let whole: Vec<u8> = rest.drain(..=end).collect();
        let whole = String::from_utf8_lossy(&whole);
        lines.extend(whole.lines().map(str::to_owned));
    }
}

#[test]
fn a_line_counts_once_it_is_whole() {
    let folder = super::folder::Folder::new();
    let log = Log::new(&folder.path().join("log"));
    let all = || log.read(<[String]>::to_vec);
    (&log.end).write_all(b"one\ntw").unwrap();
    assert_eq!(all(), ["one"]);
    (&log.end).write_all(b"o\n").unwrap();
    log.push("three");
    assert_eq!(all(), ["one", "two", "three"]);
    assert_eq!(log.tail(), "one\ntwo\nthree");
}
