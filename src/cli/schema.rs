//! `migrate`: the schema, and the rights to it.

use std::path::Path;

use clap::Args;

use super::{Exit, output::Out, settings};
use crate::store::{
    migrate::{self, KNOWN, MIGRATIONS},
    roles::{self, GRANTABLE, Kind},
};

/// `migrate`
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Print the SQL of all migrations, and do nothing. Needs no database.
    #[arg(long, conflicts_with_all = ["grant_app", "functions", "grant_sidecar", "grant_operator", "grant_readonly"])]
    print: bool,
    /// Also grant what an app needs to this role, and no more.
    #[arg(long, value_name = "ROLE")]
    grant_app: Option<String>,
    /// With --grant-app: also grant these functions.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "grant_app",
          value_parser = clap::builder::PossibleValuesParser::new(GRANTABLE))]
    functions: Vec<String>,
    /// Also grant what `leafhopper run` needs to this role, and no more.
    #[arg(long, value_name = "ROLE")]
    grant_sidecar: Option<String>,
    /// Also grant what the commands that look and act need to this role, and no more.
    #[arg(long, value_name = "ROLE")]
    grant_operator: Option<String>,
    /// Also grant what the commands that look need to this role, and no more.
    #[arg(long, value_name = "ROLE")]
    grant_readonly: Option<String>,
}

/// Brings the schema to what this program needs, and grants what is asked for.
pub(crate) async fn migrate(
    args: &MigrateArgs,
    config: &Path,
    out: &mut Out<'_>,
) -> anyhow::Result<Exit> {
    if args.print {
        for migration in MIGRATIONS {
            // Each in a transaction of its own, as `migrate` itself does it.
            writeln!(
                out.out,
                "-- migration {}: {}\nBEGIN;\n{}\nCOMMIT;",
                migration.version,
                migration.name,
                migration.sql.trim_end()
            )?;
        }
        return Ok(Exit::Done);
    }
    let database = settings::database_only(config)?;
    let connect = settings::direct(&database)?;
    let applied = migrate::migrate(&connect).await?;
    for migration in &applied {
        writeln!(
            out.out,
            "applied migration {}: {}",
            migration.version, migration.name
        )?;
    }
    if applied.is_empty() {
        writeln!(out.out, "the schema is at version {KNOWN} already")?;
    }
    let mut grants = Vec::new();
    if let Some(role) = &args.grant_app {
        grants.extend(roles::grant_app(&connect, role, &args.functions).await?);
    }
    for (kind, role) in [
        (Kind::Sidecar, &args.grant_sidecar),
        (Kind::Operator, &args.grant_operator),
        (Kind::ReadOnly, &args.grant_readonly),
    ] {
        if let Some(role) = role {
            grants.extend(roles::grant(&connect, kind, role).await?);
        }
    }
    for grant in grants {
        writeln!(out.out, "{grant};")?;
    }
    Ok(Exit::Done)
}
