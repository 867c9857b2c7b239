//! Where a throw-away server lives and as whom it runs, and what becomes of the places whose owner was killed.
//!
//! PostgreSQL refuses to run as root; as root it is started as `postgres`, else as `nobody`. The folder
//! belongs to that user, is closed to everybody else, and lies where that user can get to.

use std::{
    fs, io,
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Every folder starts with this; the owner's process id follows.
const PREFIX: &str = "leafhopper-pg-";

/// A user other than root, as whom the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// `None` where this process is not root and simply stays who it is.
    pub(super) fn to_become() -> io::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd")?;
        let user = ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| named(&passwd, name));
        user.map(Some).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "PostgreSQL does not run as root, and /etc/passwd has neither postgres nor nobody",
            )
        })
    }

    /// Makes the command run as this user, without root's groups.
    pub(super) fn applied(user: Option<Self>, command: &mut Command) -> &mut Command {
        if let Some(Self { uid, gid }) = user {
            command.uid(uid).gid(gid);
        }
        command
    }
}

fn named(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(User { uid, gid })
    })
}

/// A folder of our own, mode 0700, that `user` owns and can reach.
pub(super) fn create(user: Option<User>, unique: &str) -> io::Result<PathBuf> {
    let candidates = [
        std::env::temp_dir(),
        PathBuf::from("/tmp"),
        PathBuf::from("/var/tmp"),
    ];
    let parent = candidates
        .iter()
        .find(|parent| parent.is_dir() && (user.is_none() || open_to_all(parent)))
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                "neither the temporary folder nor /tmp nor /var/tmp can be entered by other users",
            )
        })?;
    let folder = parent.join(format!("{PREFIX}{}-{unique}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    if let Some(User { uid, gid }) = user {
        chown(&folder, Some(uid), Some(gid))?;
    }
    Ok(folder)
}

fn open_to_all(folder: &Path) -> bool {
    folder.ancestors().all(|part| {
        // The empty ancestor of a relative path is the current folder.
        let part = if part.as_os_str().is_empty() {
            Path::new(".")
        } else {
            part
        };
        fs::metadata(part).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0)
    })
}

/// Removes what owners that are gone have left behind.
///
/// The watchdog of a server does this within moments; what is found here lost its watchdog, too. Only folders
/// of the users that we may act for are touched, and nothing here can make a start fail.
pub(super) fn sweep(user: Option<User>) {
    let ours = user.map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
    for parent in [
        std::env::temp_dir(),
        PathBuf::from("/tmp"),
        PathBuf::from("/var/tmp"),
    ] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let folder = entry.path();
            let owner = entry.file_name().to_str().and_then(owner_of);
            let left =
                owner.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
            let is_ours = entry
                .metadata()
                .is_ok_and(|meta| meta.is_dir() && meta.uid() == ours);
            if left && is_ours {
                stop_server_of(&folder);
                remove(&folder);
            }
        }
    }
}

/// Removes a folder; one that resists is left to the next sweep.
pub(super) fn remove(folder: &Path) {
    fs::remove_dir_all(folder).ok();
}

/// Removes a file that is no longer needed; it goes with its folder in any case.
pub(super) fn remove_file(file: &Path) {
    fs::remove_file(file).ok();
}

fn owner_of(name: &str) -> Option<Pid> {
    let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Pid::from_raw(pid.parse().ok()?)
}

fn stop_server_of(folder: &Path) {
    let data = folder.join("data");
    let Some(pid) = server_of(&data) else { return };
    // The file may be older than the process that has the number now.
    let works_here = fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero()));
    if works_here.is_ok_and(|cwd| cwd == data) {
        kill_process(pid, Signal::QUIT).ok();
    }
}

fn server_of(data: &Path) -> Option<Pid> {
    let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    Pid::from_raw(file.lines().next()?.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_read_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgresql:x:7:7::/:\npostgres:x:101:104:,,,:/:/bin/sh\n";
        assert_eq!(named(passwd, "postgres"), Some(User { uid: 101, gid: 104 }));
        assert_eq!(named(passwd, "nobody"), None);
    }

    #[test]
    fn the_owner_is_part_of_the_folder_s_name() {
        assert_eq!(
            owner_of("leafhopper-pg-4711-ab12").map(|pid| pid.as_raw_nonzero().get()),
            Some(4711)
        );
        assert_eq!(owner_of("leafhopper-pg-x-ab12"), None);
        assert_eq!(owner_of("something-else"), None);
    }
}
