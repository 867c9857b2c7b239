//! The begun-file: what this process has begun to send, for the one that starts after a SIGKILL.
//!
//! A claim is the durable mark "may have been sent". Where `dispatch.state_dir` survives the process, a line is
//! written (not synced) there before each send. So the next process on this machine knows which of a dead
//! one's claims were certainly never sent, and it knows at once that the dead one is dead: each holds a lock on
//! its own file (`flock(2)`), and the kernel gives it up with the process. Nobody has to wait for the lease.
//!
//! What a crash of the machine leaves is not trusted: the file begins with the machine's boot id.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::{domain::call::CallId, step::reached};

/// A call and the round of the claim under which it is sent.
type Claim = (CallId, i64);

/// Two big-endian numbers.
const RECORD_BYTES: usize = 16;

/// The file is written anew when it has grown to so many records.
const RECORDS_MAX: usize = 100_000;

const SUFFIX: &str = "begun";

/// This process's file.
#[derive(Debug)]
pub(crate) struct Begun {
    folder: PathBuf,
    id: Uuid,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Gone where it can't be written: then nothing is known of this process, and its lease decides.
    file: Option<File>,
    under_way: HashSet<Claim>,
    records: usize,
}

/// A process that died here.
#[derive(Debug)]
pub(crate) struct Predecessor {
    /// Its instance.
    pub(crate) id: Uuid,
    /// What it had begun to send; `None` where the file can't tell.
    pub(crate) begun: Option<Vec<Claim>>,
    path: PathBuf,
    /// Locked, so that of two processes that start together only one takes over.
    _lock: File,
}

impl Begun {
    /// Makes this process's file, and finds those of dead ones.
    ///
    /// # Errors
    /// The folder can't be written.
    pub(crate) fn open(folder: &Path, id: Uuid) -> io::Result<(Self, Vec<Predecessor>)> {
        fs::create_dir_all(folder)?;
        let file = create(folder, id, &HashSet::new())?;
        let begun = Self {
            folder: folder.to_owned(),
            id,
            state: Mutex::new(State {
                file: Some(file),
                under_way: HashSet::new(),
                records: 0,
            }),
        };
        let mut dead = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if let Some(found) = instance_of(&path).filter(|found| *found != id) {
                dead.extend(predecessor(&path, found)?);
            }
        }
        Ok((begun, dead))
    }

    /// The request is about to be sent.
    pub(crate) fn note(&self, claim: Claim) {
        self.write(claim);
        reached("begun-file", "done");
    }

    fn write(&self, claim: Claim) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.under_way.insert(claim);
        let State {
            file: Some(file),
            under_way,
            records,
        } = &mut *state
        else {
            return;
        };
        *records += 1;
        let written = if *records > RECORDS_MAX.max(under_way.len() * 2) {
            *records = under_way.len();
            create(&self.folder, self.id, under_way).map(|anew| *file = anew)
        } else {
            file.write_all(&record(claim))
        };
        if let Err(error) = written {
            tracing::error!(
                "dispatch.state_dir: can't write the begun-file: {error}; after a crash the lease decides"
            );
            // A file with a gap would call a sent request unsent.
            fs::remove_file(path(&self.folder, self.id)).unwrap_or_default();
            state.file = None;
        }
    }

    /// It is recorded.
    pub(crate) fn ended(&self, claim: Claim) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.under_way.remove(&claim);
    }

    /// A clean end: there is nothing to take over.
    pub(crate) fn remove(&self) {
        fs::remove_file(path(&self.folder, self.id)).unwrap_or_default();
    }
}

impl Predecessor {
    /// It is taken over; nobody needs its file any more.
    pub(crate) fn forget(self) {
        fs::remove_file(&self.path).unwrap_or_default();
    }
}

fn path(folder: &Path, id: Uuid) -> PathBuf {
    folder.join(format!("instance-{id}.{SUFFIX}"))
}

fn instance_of(path: &Path) -> Option<Uuid> {
    let name = path.file_name()?.to_str()?;
    let id = name.strip_prefix("instance-")?.strip_suffix(SUFFIX)?;
    id.strip_suffix('.')?.parse().ok()
}

fn record((call, round): Claim) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&call.to_be_bytes());
    bytes[8..].copy_from_slice(&round.to_be_bytes());
    bytes
}

/// A locked file in its place. It is locked before it has its name: nobody ever sees it unlocked.
fn create(folder: &Path, id: Uuid, claims: &HashSet<Claim>) -> io::Result<File> {
    let unnamed = folder.join(format!("instance-{id}.new"));
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&unnamed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let mut content = boot_id()?.into_bytes();
    for claim in claims {
        content.extend(record(*claim));
    }
    file.write_all(&content)?;
    fs::rename(&unnamed, path(folder, id))?;
    Ok(file)
}

/// Changes with each start of the machine (`proc(5)`, `/proc/sys/kernel/random/boot_id`).
fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
}

/// `None` where its process lives.
fn predecessor(path: &Path, id: Uuid) -> io::Result<Option<Predecessor>> {
    let mut file = loop {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            // Somebody else has taken it over.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        // One that lives may have written another one meanwhile, and given up the lock of this one.
        let is_the_same = fs::metadata(path).map(|now| now.ino());
        if is_the_same.ok() == Some(file.metadata()?.ino()) {
            break file;
        }
    };
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(Some(Predecessor {
        id,
        begun: claims(&content, &boot_id()?),
        path: path.to_owned(),
        _lock: file,
    }))
}

/// What a file tells; a torn last record was not written before its send, so there was none.
fn claims(content: &[u8], boot: &str) -> Option<Vec<Claim>> {
    let records = content.strip_prefix(boot.as_bytes())?;
    let number = |bytes: &[u8]| bytes.try_into().map(i64::from_be_bytes).ok();
    records
        .chunks_exact(RECORD_BYTES)
        .map(|record| Some((number(&record[..8])?, number(&record[8..])?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("leafhopper-begun-{}", Uuid::new_v4()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_dead_process_tells_what_it_had_begun_and_a_living_one_nothing() {
        let folder = folder();
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let (living, dead) = Begun::open(&folder, first).unwrap();
        assert!(dead.is_empty());
        living.note((7, 1));
        living.note((8, 2));
        let (other, dead) = Begun::open(&folder, second).unwrap();
        assert!(dead.is_empty(), "the first one lives");
        other.remove();
        drop(living);
        let (_third, dead) = Begun::open(&folder, Uuid::from_u128(3)).unwrap();
        let [predecessor] = dead.try_into().unwrap();
        assert_eq!(predecessor.id, first);
        assert_eq!(predecessor.begun, Some(vec![(7, 1), (8, 2)]));
        predecessor.forget();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_boot_and_a_torn_record_are_not_trusted() {
        let whole = [b"boot\n".as_slice(), &record((7, 1)), &record((8, 2))].concat();
        assert_eq!(claims(&whole, "boot\n"), Some(vec![(7, 1), (8, 2)]));
        assert_eq!(
            claims(&whole[..whole.len() - 3], "boot\n"),
            Some(vec![(7, 1)])
        );
        assert_eq!(claims(&whole, "else\n"), None);
        assert_eq!(claims(b"", "boot\n"), None);
    }

    #[test]
    fn a_file_that_has_grown_is_written_anew_with_what_is_under_way() {
        let folder = folder();
        let id = Uuid::from_u128(1);
        let (begun, _) = Begun::open(&folder, id).unwrap();
        for call in 0..100_010 {
            begun.note((call, 1));
            if call != 5 {
                begun.ended((call, 1));
            }
        }
        assert!(fs::metadata(path(&folder, id)).unwrap().len() < 1000);
        drop(begun);
        let (_next, dead) = Begun::open(&folder, Uuid::from_u128(2)).unwrap();
        assert!(dead[0].begun.as_ref().unwrap().contains(&(5, 1)));
        fs::remove_dir_all(&folder).unwrap();
    }
}
