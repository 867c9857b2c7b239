//! The text of a sidecar's configuration file.

use std::fmt::Write as _;

use super::sidecar::{Sidecar, Starter};

/// Quick enough for a test.
const POLLS: &str = "poll_interval = \"100ms\"";

/// The text of a configuration file.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    database_url: String,
    database: String,
    listen: String,
    dispatch: String,
    leaves: String,
    rest: String,
}

impl Config {
    /// A listener on a free port, and times that suit a test.
    pub(crate) fn new(database_url: &str) -> Self {
        let dispatch = format!("{POLLS}\n");
        let database_url = database_url.to_owned();
        Self {
            database_url,
            database: String::new(),
            listen: "address = \"127.0.0.1:0\"".to_owned(),
            dispatch,
            leaves: String::new(),
            rest: String::new(),
        }
    }

    /// A leaf, with further lines of its table.
    pub(crate) fn leaf(mut self, name: &str, base_url: &str, lines: &str) -> Self {
        write!(
            self.leaves,
            "\n[leaf.{name}]\nbase_url = {base_url:?}\n{lines}\n"
        )
        .unwrap();
        self
    }

    /// How often it looks by itself, instead of ten times a second.
    pub(crate) fn poll_interval(mut self, interval: &str) -> Self {
        let line = format!("poll_interval = {interval:?}");
        self.dispatch = self.dispatch.replacen(POLLS, &line, 1);
        self
    }

    /// Further lines of `[dispatch]`.
    pub(crate) fn dispatch(mut self, lines: &str) -> Self {
        self.dispatch.push_str(lines);
        self.dispatch.push('\n');
        self
    }

    /// Further lines of `[database]`.
    pub(crate) fn database(mut self, lines: &str) -> Self {
        self.database.push_str(lines);
        self.database.push('\n');
        self
    }

    /// Further lines of `[listen]`.
    pub(crate) fn listen(mut self, lines: &str) -> Self {
        self.listen.push('\n');
        self.listen.push_str(lines);
        self
    }

    /// That leaf can be asked: one of the tests' leaves shows the effect, which has the call's key. With further lines.
    pub(crate) fn probe(self, leaf: &str, lines: &str) -> Self {
        self.toml(&format!(
            "[leaf.{leaf}.probe]\npath = \"/effects/{{{{ call.key }}}}\"\n\
             found = \"response.body if response.body.key == call.key\"\n{lines}"
        ))
    }

    /// Further tables, such as `[leaf.NAME.idempotency]`.
    pub(crate) fn toml(mut self, tables: &str) -> Self {
        self.rest.push_str(tables);
        self.rest.push('\n');
        self
    }

    /// The file's text.
    pub(crate) fn text(&self) -> String {
        let Self {
            database_url,
            database,
            listen,
            dispatch,
            leaves,
            rest,
        } = self;
        format!(
            "[database]\nurl = {database_url:?}\n{database}\n[listen]\n{listen}\n\n\
             [dispatch]\n{dispatch}{leaves}\n{rest}"
        )
    }

    /// A folder with the file in it, for a sidecar that is yet to be started.
    pub(crate) fn sidecar(&self) -> Starter {
        let starter = Starter::new();
        starter.rewrite_text(&self.text());
        starter
    }

    /// A running sidecar that is ready.
    pub(crate) async fn start(&self) -> Sidecar {
        self.sidecar().start().await
    }
}
