//! The source keeps its own rules: layers, documentation, size, words.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// What does not fit here is two things.
const FILE_LINES_MAX: usize = 450;

#[test]
fn every_source_file_says_what_it_is_for() {
    let silent = |(_, text): &(String, String)| !text.starts_with("//!");
    assert_none(
        "start with a line of `//!`",
        rust().filter(silent).map(|(path, _)| path),
    );
}

#[test]
fn every_source_file_is_a_module_of_its_folder() {
    // A file that nobody names is not compiled: its tests never run, and nothing says so.
    let files: BTreeMap<String, String> = rust().collect();
    let unnamed = files.keys().filter(|path| {
        let module = path
            .trim_end_matches(".rs")
            .trim_end_matches("/mod")
            .rsplit_once('/');
        let Some((folder, module)) = module.filter(|(_, name)| !["main", "lib"].contains(name))
        else {
            return false;
        };
        let parents = ["/mod.rs", "/main.rs", "/lib.rs", ".rs"];
        let mut parents = parents
            .iter()
            .filter_map(|parent| files.get(&format!("{folder}{parent}")));
        !parents.any(|text| {
            let names = |line: &str| line.trim_end().ends_with(&format!("mod {module};"));
            text.lines().any(names)
        })
    });
    assert_none("name it with `mod`", unnamed);
}

#[test]
fn no_file_is_too_long() {
    let code = all().filter(|(path, _)| path.ends_with(".rs") || path.ends_with(".sql"));
    let long = code.filter_map(|(path, text)| {
        let lines = text.lines().count();
        (lines > FILE_LINES_MAX).then(|| format!("{path}: {lines} lines"))
    });
    assert_none("split it", long);
}

#[test]
fn the_domain_knows_nothing_but_itself() {
    let ours = src_modules();
    assert_none(
        "src/domain uses domain only",
        lines_of("src/domain/").filter(|line| {
            let code = line.code();
            let named = |module: &String| code.contains(&format!("crate::{module}"));
            let outside = [
                "tokio::",
                "reqwest",
                "tokio_postgres",
                "deadpool",
                "axum::",
                "tracing::",
            ];
            ours.iter().filter(|module| *module != "domain").any(named)
                || outside.iter().any(|krate| code.contains(krate))
        }),
    );
}

#[test]
fn only_the_store_says_sql() {
    assert_none(
        "only src/store knows the database's client",
        lines_of("src/").filter(|line| {
            let code = line.code();
            !line.path.starts_with("src/store/")
                && (code.contains("tokio_postgres") || code.contains("deadpool_postgres"))
        }),
    );
}

#[test]
fn only_the_leaf_says_http() {
    assert_none(
        "only src/leaf knows the HTTP client; src/config may name its Url",
        lines_of("src/").filter(|line| {
            let code = line.code().replace("reqwest::Url", "");
            let url = line.path.starts_with("src/config/");
            !line.path.starts_with("src/leaf/")
                && (code.contains("reqwest") || line.code().contains("reqwest::Url") && !url)
        }),
    );
}

#[test]
fn only_telemetry_knows_opentelemetry() {
    assert_none(
        "only src/telemetry knows OpenTelemetry's crates",
        lines_of("src/").filter(|line| {
            let code = line.code();
            let named = code.contains("opentelemetry::") || code.contains("opentelemetry_");
            named && !line.path.starts_with("src/telemetry/")
        }),
    );
}

#[test]
fn store_and_leaf_do_not_know_the_engine_or_each_other() {
    let forbidden = [
        ("src/store/", ["crate::leaf", "crate::engine"]),
        ("src/leaf/", ["crate::store", "crate::engine"]),
    ];
    for (folder, modules) in forbidden {
        assert_none(
            "the engine brings store and leaf together",
            lines_of(folder).filter(|line| modules.iter().any(|m| line.code().contains(m))),
        );
    }
}

#[test]
fn every_query_has_one_place_and_a_header() {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines_of("src/") {
        for part in line.code().split("sql/queries/").skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            *uses.entry(format!("sql/queries/{name}")).or_default() += 1;
        }
    }
    let queries: Vec<_> = all()
        .filter(|(path, _)| path.starts_with("sql/queries/"))
        .collect();
    assert_none(
        "each query is included exactly once",
        queries.iter().filter_map(|(path, _)| {
            let count = uses.get(path).copied().unwrap_or_default();
            (count != 1).then(|| format!("{path}: {count} times"))
        }),
    );
    let bare = queries.iter().filter(|(_, text)| !text.starts_with("--"));
    assert_none(
        "each query starts with a comment that explains it",
        bare.map(|(path, _)| path),
    );
}

#[test]
fn the_headers_of_queries_are_true() {
    let files: BTreeMap<String, String> = all().collect();
    let schema =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/schema.sql"));
    let schema = schema.unwrap();
    let mut wrong = Vec::new();
    for (path, text) in files
        .iter()
        .filter(|(path, _)| path.starts_with("sql/queries/"))
    {
        let callers: Vec<String> = named(text, "-- Caller:")
            .filter(|word| word.ends_with(".rs"))
            .map(|word| format!("src/{word}"))
            .collect();
        let missing = callers.iter().filter(|caller| !files.contains_key(*caller));
        wrong.extend(missing.map(|caller| format!("{path}: there is no {caller}")));
        let includes = |caller: &String| files.get(caller).is_some_and(|code| code.contains(path));
        if !callers.iter().any(includes) {
            wrong.push(format!("{path}: none of {callers:?} includes it"));
        }
        let indexes =
            named(text, "-- Index:").filter(|word| word.contains('_') && !word.contains('('));
        wrong.extend(
            indexes
                .filter(|index| !schema.contains(index))
                .map(|index| format!("{path}: there is no index {index}")),
        );
    }
    assert_none("a header says what is so", wrong.into_iter());
}

/// The words of a header's entry, which may go on in further lines.
fn named<'text>(text: &'text str, entry: &'static str) -> impl Iterator<Item = &'text str> {
    let lines = text
        .lines()
        .skip_while(move |line| !line.starts_with(entry));
    let mut first = true;
    let lines =
        lines.take_while(move |line| std::mem::take(&mut first) || line.starts_with("--   "));
    lines
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_matches([',', ':', ';', '.']))
}

#[test]
fn tests_wait_in_one_place_only() {
    assert_none(
        "wait with harness::wait::until",
        lines_of("tests/").filter(|line| {
            line.path != "tests/it/harness/wait.rs" && line.code().contains(concat!("sleep", "("))
        }),
    );
}

#[test]
fn nothing_is_left_for_later() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("for ", "now"),
        concat!("XX", "X"),
    ];
    let lines = ["src/", "tests/", "sql/", "deploy/"]
        .into_iter()
        .flat_map(lines_of);
    assert_none(
        "do it, or leave it out",
        lines.filter(|line| words.iter().any(|word| line.text.contains(word))),
    );
}

/// One line of a file.
struct Line {
    path: String,
    number: usize,
    text: String,
}

impl Line {
    /// The line without its comment.
    fn code(&self) -> &str {
        let comment = self
            .text
            .find("//")
            .filter(|&at| !self.text[..at].ends_with(':'));
        comment.map_or(self.text.as_str(), |at| &self.text[..at])
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.number, self.text.trim())
    }
}

fn assert_none<T: std::fmt::Display>(rule: &str, found: impl Iterator<Item = T>) {
    let found: Vec<String> = found.map(|found| found.to_string()).collect();
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

fn lines_of(folder: &'static str) -> impl Iterator<Item = Line> {
    all()
        .filter(move |(path, _)| path.starts_with(folder))
        .flat_map(|(path, text)| {
            let lines = text.lines().enumerate().map(|(index, line)| Line {
                path: path.clone(),
                number: index + 1,
                text: line.to_owned(),
            });
            lines.collect::<Vec<_>>()
        })
}

fn rust() -> impl Iterator<Item = (String, String)> {
    all().filter(|(path, _)| path.ends_with(".rs"))
}

/// The top modules of the library.
fn src_modules() -> Vec<String> {
    let lines = lines_of("src/lib.rs");
    let modules = lines.filter_map(|line| {
        let (_, name) = line.text.trim_end_matches(';').rsplit_once("mod ")?;
        Some(name.to_owned())
    });
    modules.collect()
}

/// Path and text of every file that is written by hand.
fn all() -> impl Iterator<Item = (String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = ["src", "tests", "sql", "deploy"]
        .map(|name| root.join(name))
        .into();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let path = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                files.push((path, text));
            }
        }
    }
    files.sort();
    // Generated by a tool, or taken from elsewhere.
    files.retain(|(path, _)| {
        !path.ends_with(".snap") && !path.ends_with(".json") && path != "sql/schema.sql"
    });
    files.into_iter()
}
