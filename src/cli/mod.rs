//! The command line: what can be said, and which function does it.
//!
//! A command writes what was asked for to stdout, and all else to stderr. It ends with 0 (done), 1 (failed,
//! or failed in part) or 2 (said wrongly). A reader that closes the pipe (`| head`) ends it with 0.
//!
//! `run`, `check` and `prune` need the whole configuration. All others need the database alone, and work whatever is
//! wrong with the leaves.

mod batch;
mod batches;
mod calls;
mod change;
mod check;
mod healthcheck;
mod leaves;
pub mod log;
mod manual;
pub mod output;
mod prune;
mod run;
mod schema;
mod select;
mod settings;
mod show;
mod watch;

use std::{io, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use output::{Colour, Out};

use crate::{
    config,
    domain::call::CallId,
    present::text::clean,
    shutdown::told_as_first_process,
    store::{StoreError, operator::act::ActError},
};

/// What the long help and the manual say beside the options.
const MORE: &str = "\
Exit codes: 0 done, 1 failed or done in part, 2 said wrongly.

Environment: LEAFHOPPER_CONFIG (--config), DATABASE_URL (goes before database.url of the file), \
LEAFHOPPER_LOG_FORMAT, LEAFHOPPER_LOG_LEVEL, and what the configuration names as { env = \"NAME\" }.

Signals of `leafhopper run`: SIGTERM and SIGINT drain within shutdown_grace, a second one ends at once; SIGHUP reads \
the configuration again.";

/// Sends HTTP calls that an application writes as rows of its own PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "leafhopper", version, max_term_width = 100, after_long_help = MORE)]
pub struct Cli {
    /// The configuration file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEAFHOPPER_CONFIG",
        hide_env_values = true,
        default_value = config::USUAL_FILE
    )]
    pub config: PathBuf,

    /// How the log is written; text on a terminal, else json.
    #[arg(
        long,
        global = true,
        value_enum,
        env = "LEAFHOPPER_LOG_FORMAT",
        hide_env_values = true
    )]
    pub log_format: Option<log::Format>,

    /// What is logged: a level of leafhopper's own lines (error, warn, info, debug, trace), or target=level,…
    /// as in `RUST_LOG`; info for run and demo, else warn.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "LEAFHOPPER_LOG_LEVEL",
        hide_env_values = true
    )]
    pub log_level: Option<String>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Send calls, until told to stop.
    Run(run::RunArgs),
    /// Bring the database's schema to what this leafhopper needs, or grant rights to it.
    Migrate(schema::MigrateArgs),
    /// Look whether the configuration, the database and the leaves are well.
    Check(check::CheckArgs),
    /// Ask the sidecar that runs with this configuration whether its loops turn (`/livez`): for containers.
    Healthcheck,
    /// Show what leafhopper does, with leaves and an app of its own.
    Demo(run::DemoArgs),
    /// List calls, the newest first.
    Calls(calls::CallsArgs),
    /// Show one call with everything that is known of it, and what would move it.
    Show(show::ShowArgs),
    /// List batches, the newest first.
    Batches(batches::BatchesArgs),
    /// Show one batch: what its calls did, what it waits for, what stands, and what would move it.
    Batch(batch::BatchArgs),
    /// Send failed calls again.
    Retry(change::RetryArgs),
    /// Say what is true of calls that nobody knows about: executed, or not; or let an effect stand.
    Resolve(change::ResolveArgs),
    /// Keep calls from being sent.
    Cancel(change::CancelArgs),
    /// Cancel a batch: what waits is not sent, what was confirmed is undone.
    CancelBatch(batches::CancelBatchArgs),
    /// Let the next call behind a failed head of an ordering key go, once.
    Release(change::ReleaseArgs),
    /// Stop sending to a leaf.
    Pause(leaves::PauseArgs),
    /// Send to a leaf again, or to all; also after the database changed.
    Resume(leaves::ResumeArgs),
    /// Take away what is older than `[retention]` says, which a running sidecar does little by little.
    Prune(prune::PruneArgs),
    /// Write a shell's completions: `leafhopper completions bash > /etc/bash_completion.d/leafhopper`.
    Completions(manual::CompletionsArgs),
    /// Write the manual.
    Man(manual::ManArgs),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All of it is done.
    Done,
    /// Some of it is not.
    Failed,
}

impl From<Exit> for u8 {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
        }
    }
}

/// A command that was said wrongly, in a way that only shows when it runs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Does what the command line says. The process ends with what this returns.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let drains = matches!(cli.command, Command::Run(_) | Command::Demo(_));
    let usual = if drains { "info" } else { "warn" };
    // As with other variables of the environment, an empty one says nothing.
    let level = cli.log_level.clone().filter(|level| !level.is_empty());
    let level = level.unwrap_or_else(|| usual.to_owned());
    let mut stdout = io::BufWriter::new(io::stdout());
    let mut stderr = io::stderr();
    let mut out = Out::process(&mut stdout, &mut stderr);
    let runs = matches!(cli.command, Command::Run(_));
    let log = log::start(cli.log_format, &level);
    // Who reads a sidecar's log by a machine finds there, too, why it did not start.
    let logged = runs && log == Ok(log::Format::Json);
    let result = log.map_err(|problem| Usage(problem).into()).and_then(|_| {
        let runtime = tokio::runtime::Runtime::new()?;
        let exit = runtime.block_on(async {
            tokio::select! {
                exit = execute(cli, &mut out) => exit,
                code = told_as_first_process(), if !drains => Ok(code?),
            }
        });
        // A look-up of a name can't be cut short; nobody waits for one that is no longer wanted.
        runtime.shutdown_background();
        let exit = exit?;
        out.out.flush()?;
        Ok(exit)
    });
    ExitCode::from(match result {
        Ok(exit) => exit,
        Err(error) => complain(&mut out, &error, logged),
    })
}

/// Does what the command line says, writing to `out`. Gives the exit code.
///
/// # Errors
/// It could not be done; an error of usage, or any other.
pub async fn execute(cli: Cli, out: &mut Out<'_>) -> anyhow::Result<u8> {
    let config = cli.config.as_path();
    let exit = match cli.command {
        Command::Run(args) => run::run(&args, config).await?,
        Command::Demo(args) => run::demo(args, out).await?,
        Command::Migrate(args) => schema::migrate(&args, config, out).await?,
        Command::Check(args) => check::check(&args, config, out).await?,
        Command::Healthcheck => healthcheck::healthcheck(config, out).await?,
        Command::Calls(args) => calls::calls(args, config, out).await?,
        Command::Show(args) => show::show(&args, config, out).await?,
        Command::Batches(args) => batches::batches(args, config, out).await?,
        Command::Batch(args) => batch::batch(&args, config, out).await?,
        Command::CancelBatch(args) => batches::cancel_batch(args, config, out).await?,
        Command::Retry(args) => change::retry(args, config, out).await?,
        Command::Resolve(args) => change::resolve(args, config, out).await?,
        Command::Cancel(args) => change::cancel(args, config, out).await?,
        Command::Release(args) => change::release(&args, config, out).await?,
        Command::Pause(args) => leaves::pause(&args, config, out).await?,
        Command::Resume(args) => leaves::resume(&args, config, out).await?,
        Command::Prune(args) => prune::prune(args, config, out).await?,
        Command::Completions(args) => manual::completions(&args, out)?,
        Command::Man(args) => manual::man(&args, out)?,
    };
    Ok(exit.into())
}

/// Says what went wrong, in one place. Gives the exit code.
fn complain(out: &mut Out<'_>, error: &anyhow::Error, logged: bool) -> u8 {
    let broken_pipe = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    if broken_pipe {
        return 0;
    }
    let code = if error.is::<Usage>() { 2 } else { 1 };
    if logged && tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{}", chain(error));
        return code;
    }
    let mark = if out.colours {
        out.paint(Colour::Red, "error:")
    } else {
        "error:".to_owned()
    };
    // What was printed before belongs above it. A stream that is gone can't be complained to.
    let _gone = out.out.flush();
    let _gone = writeln!(out.err, "{mark} {}", chain(error));
    code
}

/// The whole chain in one line. A cause that its error's text repeats already is left out.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    let fault = match error.downcast_ref() {
        Some(ActError::Store(fault)) => Some(fault),
        _ => error.downcast_ref(),
    };
    if fault.is_some_and(StoreError::lacks_schema) {
        text.push_str(": run `leafhopper migrate`");
    }
    // Lines of a configuration's faults stay lines.
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// The number of a call; whoever gives a key is told how calls are found by that.
pub(crate) fn call_id(text: &str) -> Result<CallId, String> {
    text.parse::<CallId>()
        .ok()
        .filter(|id| *id > 0)
        .ok_or_else(|| {
            "a call is named by its number; by its key it is found with `leafhopper calls --key KEY`".to_owned()
        })
}

/// A reason that says something.
pub(crate) fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        Err("say why: it is kept with the action".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, error::ErrorKind};

    use super::*;

    fn refused(line: &str) -> Option<ErrorKind> {
        let words = line.split(' ').map(|word| word.replace('_', " "));
        Cli::try_parse_from(words).err().map(|error| error.kind())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_of_the_contract_parses() {
        for line in [
            "leafhopper run --migrate",
            "leafhopper migrate --print",
            "leafhopper migrate --grant-app app --functions confirm,forget",
            "leafhopper migrate --grant-sidecar s --grant-operator o --grant-readonly r",
            "leafhopper check --json",
            "leafhopper healthcheck",
            "leafhopper demo",
            "leafhopper calls --state parked --leaf git --stuck --json",
            "leafhopper calls --batch 00000000-0000-0000-0000-000000000001 --config x.toml",
            "leafhopper show 5 --json",
            "leafhopper retry 5 6 --reason why",
            "leafhopper retry 5 --expect-attempts 3 --reason why",
            "leafhopper retry --leaf git --reason-is rejected --reason why --yes",
            "leafhopper resolve 5 --confirmed --status 201 --body {} --reason why",
            "leafhopper resolve 5 --not-executed --no-send --reason why",
            "leafhopper resolve 5 --waive --expect-attempts 3 --reason why",
            "leafhopper resolve --batch 00000000-0000-0000-0000-000000000001 --waive --reason why --yes",
            "leafhopper batches --state compensating --stuck --json",
            "leafhopper batch 00000000-0000-0000-0000-000000000001 --json",
            "leafhopper cancel-batch 00000000-0000-0000-0000-000000000001 --reason why --yes",
            "leafhopper cancel 5 --reason why",
            "leafhopper release 5 --reason why",
            "leafhopper pause git --reason why",
            "leafhopper resume git --reason why",
            "leafhopper resume --all --as probe --reason why",
            "leafhopper calls --stuck --watch",
            "leafhopper calls --watch=5 --json",
            "leafhopper batches --watch",
            "leafhopper prune --reason why --yes",
            "leafhopper prune --reason why --dry-run --json",
            "leafhopper completions zsh",
            "leafhopper man --dir man",
        ] {
            assert_eq!(refused(line), None, "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_a_fault_of_usage() {
        for line in [
            "leafhopper retry 5",
            "leafhopper prune",
            "leafhopper prune 5 --reason why",
            "leafhopper retry 5 --reason _",
            "leafhopper retry 0 --reason why",
            "leafhopper resolve 5 --reason why",
            "leafhopper resolve 5 --confirmed --not-executed --reason why",
            "leafhopper resolve 5 --not-executed --status 200 --reason why",
            "leafhopper resolve 5 --confirmed --no-send --reason why",
            "leafhopper resolve 5 --confirmed --body {nonsense --reason why",
            "leafhopper resolve 5 --confirmed --status 99 --reason why",
            "leafhopper resolve 5 --waive --confirmed --reason why",
            "leafhopper resolve 5 --waive --status 200 --reason why",
            "leafhopper resolve 5 --waive --no-send --reason why",
            "leafhopper batches --state pending",
            "leafhopper batch 5",
            "leafhopper cancel-batch 00000000-0000-0000-0000-000000000001",
            "leafhopper resume --reason why",
            "leafhopper resume git --all --reason why",
            "leafhopper resume git --as probe --reason why",
            "leafhopper calls --state nonsense",
            "leafhopper calls --watch=0",
            "leafhopper completions tcsh",
            "leafhopper migrate --functions confirm",
        ] {
            assert!(refused(line).is_some(), "{line}");
        }
    }
}
