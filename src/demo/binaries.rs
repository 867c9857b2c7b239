//! Finds the programs of a PostgreSQL server on this machine.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Debian keeps a folder here for each major version, and none of them in `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The folder, beside the project, into which `.ci/postgres` unpacks a server for a user without root.
const LOCAL: &str = ".postgres/bin";

/// The folder with `initdb`, `postgres` and `psql`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// Empty where the programs are found through `PATH`.
    folder: PathBuf,
}

/// Why there is no server to start.
#[derive(Debug, thiserror::Error)]
pub enum BinariesError {
    /// The caller named a folder, and the server is not in it.
    #[error(
        "no PostgreSQL server in {}: it has no program named {missing} — \
         name the folder that holds initdb and postgres, such as /usr/lib/postgresql/15/bin", folder.display()
    )]
    NotThere {
        /// The folder that was named.
        folder: PathBuf,
        /// The program that it lacks.
        missing: &'static str,
    },
    /// None of the usual places has one.
    #[error(
        "no PostgreSQL server on this machine — install Debian's package postgresql \
         (apt-get install postgresql), or run .ci/postgres, which needs no root, \
         or name the folder of initdb and postgres in LEAFHOPPER_POSTGRES_BIN"
    )]
    Nowhere,
}

impl Binaries {
    /// The folder that the caller names, else `.postgres` under one of `bases`, else Debian's highest
    /// version, else `PATH`.
    ///
    /// # Errors
    ///
    /// A named folder without a server is an error; the search does not go on to another version.
    pub fn find(named: Option<&Path>, bases: &[&Path]) -> Result<Self, BinariesError> {
        if let Some(folder) = named {
            let folder = folder.to_path_buf();
            return match missing_from(&folder) {
                None => Ok(Self { folder }),
                Some(missing) => Err(BinariesError::NotThere { folder, missing }),
            };
        }
        let local = bases.iter().map(|base| base.join(LOCAL));
        if let Some(folder) = local
            .chain(debian_highest())
            .find(|f| missing_from(f).is_none())
        {
            return Ok(Self { folder });
        }
        if in_path("initdb") && in_path("postgres") {
            return Ok(Self {
                folder: PathBuf::new(),
            });
        }
        Err(BinariesError::Nowhere)
    }

    /// One of the programs, for [`Command::new`].
    ///
    /// Some packages of the server come without clients; theirs are then looked for in `PATH`.
    pub fn program(&self, name: &str) -> PathBuf {
        let here = self.folder.join(name);
        if here.exists() {
            here
        } else {
            PathBuf::from(name)
        }
    }
}

fn missing_from(folder: &Path) -> Option<&'static str> {
    ["initdb", "postgres"]
        .into_iter()
        .find(|name| !folder.join(name).is_file())
}

fn debian_highest() -> Option<PathBuf> {
    let majors = std::fs::read_dir(DEBIAN).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let major: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let bin = path.join("bin");
        // A version of which only the clients are installed has a folder too.
        missing_from(&bin).is_none().then_some((major, bin))
    });
    majors.max().map(|(_, bin)| bin)
}

fn in_path(name: &str) -> bool {
    let run = Command::new(name)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    run.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_folder_without_a_server_is_an_error_that_says_so() {
        let error = Binaries::find(Some(Path::new("/nowhere")), &[]).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
        assert!(error.to_string().contains("initdb"), "{error}");
    }

    #[test]
    fn the_error_for_a_machine_without_postgres_names_the_package() {
        assert!(
            BinariesError::Nowhere
                .to_string()
                .contains("apt-get install postgresql")
        );
    }
}
