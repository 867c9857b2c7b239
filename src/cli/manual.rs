//! `completions` and `man`: what shells and the manual know of the commands, made from the command line itself.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, Exit, output::Out};

/// `completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// For which shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// `man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write the pages of all commands into this directory, instead of the first one to stdout.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Writes the script of a shell.
pub(crate) fn completions(args: &CompletionsArgs, out: &mut Out<'_>) -> anyhow::Result<Exit> {
    // The generator panics where it can't write: a pipe may be closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leafhopper", &mut script);
    out.out.write_all(&script)?;
    Ok(Exit::Done)
}

/// Writes the manual.
pub(crate) fn man(args: &ManArgs, out: &mut Out<'_>) -> anyhow::Result<Exit> {
    let Some(dir) = &args.dir else {
        clap_mangen::Man::new(Cli::command()).render(&mut out.out)?;
        return Ok(Exit::Done);
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
        .with_context(|| format!("can't write the manual into {}", dir.display()))?;
    writeln!(out.err, "wrote the manual into {}", dir.display())?;
    Ok(Exit::Done)
}
