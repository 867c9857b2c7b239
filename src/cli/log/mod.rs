//! The log: to stderr, as text for people and as JSON for machines. One event is one line in both, whatever is in it.

mod line;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal as _, Write as _},
    panic::PanicHookInfo,
};

use tracing::{Event, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use super::output::are_colours_wanted;
use crate::store::SAYS_PARAMETERS;

/// Libraries speak of themselves from this level on, unless one is named: a level is asked for to hear leafhopper.
const OF_LIBRARIES: LevelFilter = LevelFilter::WARN;

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log. `filter` is as in `RUST_LOG`: a level, or `target=level,…`. Gives the format that is used.
///
/// # Errors
/// The filter can't be read.
pub fn start(format: Option<Format>, filter: &str) -> Result<Format, String> {
    let read = directives(filter)
        .and_then(|all| EnvFilter::try_new(all).map_err(|error| error.to_string()));
    let filter = read.map_err(|flaw| format!("--log-level {filter}: {flaw}; for example: info"))?;
    let terminal = io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal { Format::Text } else { Format::Json });
    let lines = Lines {
        format,
        colours: terminal && are_colours_wanted(),
    };
    Registry::default()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|error| error.to_string())?;
    std::panic::set_hook(Box::new(panicked));
    Ok(format)
}

/// A bare level is leafhopper's own. Another bare word would be a target, and leave no line of any other.
fn directives(filter: &str) -> Result<String, String> {
    // The pool's own lines say again, for each connection, what the sidecar says once; the exporter's, for each
    // batch of spans.
    let mut all = vec!["deadpool=error".to_owned(), "opentelemetry=off".to_owned()];
    for directive in filter.split(',') {
        let directive = directive.trim();
        // Nothing at all would be read as `error`.
        let level = directive.parse::<LevelFilter>().ok();
        let level = level.filter(|_| !directive.is_empty());
        if directive.contains('=') {
            all.push(directive.to_owned());
        } else if let Some(level) = level {
            all.push(level.min(OF_LIBRARIES).to_string());
            all.push(format!("leafhopper={level}"));
        } else {
            return Err(format!(
                "{directive:?} is neither a level (off, error, warn, info, debug, trace) nor target=level"
            ));
        }
    }
    all.push(format!("{SAYS_PARAMETERS}=info"));
    Ok(all.join(","))
}

/// Writes each event as one line, at once.
#[derive(Debug)]
struct Lines {
    format: Format,
    colours: bool,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let line = line::Line::of(event);
        let mut text = match self.format {
            Format::Text => line.text(self.colours),
            Format::Json => line.json(),
        };
        text.push('\n');
        // A stream that is gone can't be complained to.
        let _gone = io::stderr().lock().write_all(text.as_bytes());
    }
}

/// A panic is an event like any other: a line, and not several.
fn panicked(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then_some(backtrace);
    tracing::error!(
        panic.place = place,
        panic.backtrace = backtrace.map(|it| it.to_string()),
        "a panic: {}",
        panic.payload_as_str().unwrap_or("without a text")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line() {
        let (here, others) = (std::thread::current().id(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == here {
                panicked(panic);
            } else {
                others(panic);
            }
        }));
        let (text, json) = line::tests::lines(|| {
            let panics = std::panic::catch_unwind(|| panic!("two\n{}", "lines"));
            assert!(panics.is_err());
        });
        drop(std::panic::take_hook());
        assert!(text.contains("ERROR leafhopper::cli::log: a panic: two\\nlines panic.place="));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["message"], "a panic: two\nlines");
        let place = json["panic.place"].as_str().unwrap();
        assert!(place.starts_with(file!()), "{place}");
    }

    #[test]
    fn a_level_is_leafhopper_s_and_a_target_is_what_it_says() {
        for (filter, directives) in [
            ("info", "warn,leafhopper=info"),
            ("trace", "warn,leafhopper=trace"),
            ("error", "error,leafhopper=error"),
            ("off", "off,leafhopper=off"),
            ("hyper=debug", "hyper=debug"),
            (
                "leafhopper::step=trace,INFO",
                "leafhopper::step=trace,warn,leafhopper=info",
            ),
        ] {
            let said = super::directives(filter).unwrap();
            assert_eq!(
                said,
                format!("deadpool=error,opentelemetry=off,{directives},{SAYS_PARAMETERS}=info")
            );
            EnvFilter::try_new(said).unwrap();
        }
        for filter in ["warning", "hyper", "info,verbose", "info,", ""] {
            assert!(directives(filter).is_err(), "{filter}");
        }
    }
}
