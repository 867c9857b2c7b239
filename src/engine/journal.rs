//! The journal: what leaves have said and nobody could record before the process ended.
//!
//! On a stop while the database is away, it is written to `dispatch.state_dir` (and synced), and recorded at the
//! next start, by whichever instance starts in that folder. Recording is idempotent, so a file that is replayed
//! twice, or by two at once, does no harm. Without a `state_dir` these calls are left in doubt.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{context::Context, entry::Entry};
use crate::{
    step::reached,
    store::{
        StoreError,
        record::{Confirmed, Moved},
    },
};

/// So often, and after this time, an answer is recorded that finds its call locked.
const TRIES: usize = 10;
const AGAIN: Duration = Duration::from_millis(200);

/// The first line: whose claims the others name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Author {
    instance: Uuid,
    name: String,
}

/// At the end of the process: writes what was kept, if there is anything and a place for it.
pub(super) fn write(context: &Context) {
    let entries = context.unrecorded();
    if entries.is_empty() {
        return;
    }
    let calls = entries.len();
    let Some(folder) = context.dispatch().state_dir else {
        tracing::error!(
            calls,
            "{calls} answers of leaves could not be recorded, and without dispatch.state_dir there is no place \
             to keep them: these calls are in doubt"
        );
        return;
    };
    let author = Author {
        instance: context.identity.id,
        name: context.identity.name.clone(),
    };
    match write_file(&folder, &author, &entries) {
        Ok(path) => tracing::warn!(
            calls,
            "{calls} answers of leaves could not be recorded: they are kept in {} and recorded at the next start",
            path.display()
        ),
        Err(error) => tracing::error!(
            calls,
            "{calls} answers of leaves could not be recorded, and dispatch.state_dir can't be written: {error}; \
             these calls are in doubt"
        ),
    }
}

fn write_file(folder: &Path, author: &Author, entries: &[Entry]) -> io::Result<PathBuf> {
    let path = folder.join(format!("journal-{}.jsonl", author.instance));
    // It has its name when all of it is there: another process may start meanwhile.
    let unnamed = folder.join(format!("journal-{}.new", author.instance));
    let mut content = serde_json::to_vec(author)?;
    content.push(b'\n');
    for entry in entries {
        serde_json::to_writer(&mut content, entry)?;
        content.push(b'\n');
    }
    let mut file = File::create(&unnamed)?;
    file.write_all(&content)?;
    file.sync_all()?;
    fs::rename(&unnamed, &path)?;
    reached("journal", "written");
    // The file's name must outlive a crash of the machine, too.
    File::open(folder)?.sync_all()?;
    reached("journal", "synced");
    Ok(path)
}

/// At start: records what earlier processes left.
///
/// # Errors
/// The database did not answer: everything stays for the next try.
pub(crate) async fn replay(context: &Context) -> Result<(), StoreError> {
    let Some(folder) = context.dispatch().state_dir else {
        return Ok(());
    };
    for path in journals(&folder) {
        let Ok(content) = fs::read(&path) else {
            // Another instance was faster.
            continue;
        };
        let Some((author, kept, entries)) = parse(&content) else {
            tracing::error!("{} is no journal; it is left as it is", path.display());
            continue;
        };
        if entries.len() < kept {
            tracing::error!(
                "{} holds answers that this version can't read; they are left there",
                path.display()
            );
        }
        let recorded = record(context, &author, entries).await?;
        tracing::info!(
            "{}: recorded {recorded} of {kept} answers that an earlier process kept",
            path.display()
        );
        reached("journal", "recorded");
        if recorded == kept {
            fs::remove_file(&path).unwrap_or_default();
        }
    }
    Ok(())
}

fn journals(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let named = paths.filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("journal-") && name.ends_with(".jsonl"))
    });
    named.collect()
}

/// Whose it is, how many answers it keeps, and those of them that can be read. A last line that is torn says nothing that
/// anybody could rely on: its call is in doubt.
fn parse(content: &[u8]) -> Option<(Author, usize, Vec<Entry>)> {
    let mut lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    // What follows the last line's end.
    lines.pop()?;
    let (author, lines) = lines.split_first()?;
    let author = serde_json::from_slice(author).ok()?;
    let entries = lines
        .iter()
        .filter_map(|line| serde_json::from_slice(line).ok());
    Some((author, lines.len(), entries.collect()))
}

/// Gives how many are recorded, or were decided by something newer; the others stay for the next start.
async fn record(
    context: &Context,
    author: &Author,
    entries: Vec<Entry>,
) -> Result<usize, StoreError> {
    let (mut left, mut recorded) = (entries, 0);
    for pause in [Duration::ZERO].into_iter().chain([AGAIN; TRIES]) {
        tokio::time::sleep(pause).await;
        let mut locked = Vec::new();
        // One by one: what one of them holds up keeps none of the others, and not the sidecar from its work.
        for mut entry in left {
            match record_one(context, author, &mut entry).await? {
                Replayed::Recorded => recorded += 1,
                Replayed::Locked => locked.push(entry),
                Replayed::Refused => {}
            }
        }
        left = locked;
        if left.is_empty() {
            break;
        }
    }
    Ok(recorded)
}

/// What became of an answer that was kept.
enum Replayed {
    /// Or decided by something newer.
    Recorded,
    /// Somebody is at its call: after an outage, one who takes it over.
    Locked,
    Refused,
}

async fn record_one(
    context: &Context,
    author: &Author,
    entry: &mut Entry,
) -> Result<Replayed, StoreError> {
    loop {
        match try_one(context, author, entry).await {
            Ok(false) => return Ok(Replayed::Recorded),
            Ok(true) => return Ok(Replayed::Locked),
            Err(error) if error.is_contention() => return Ok(Replayed::Locked),
            Err(error) if error.is_content() && entry.give_up_content() => {}
            Err(error) if error.is_refusal() => {
                let call = entry.call();
                tracing::error!(
                    call.id = call,
                    "what a leaf said of call {call} can't be recorded: {error}"
                );
                return Ok(Replayed::Refused);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether somebody has it locked.
async fn try_one(context: &Context, author: &Author, entry: &Entry) -> Result<bool, StoreError> {
    let store = &context.store;
    match entry {
        Entry::Confirmed(confirmation) => {
            let outcome = store
                .record_confirmed(&author.name, &[confirmation])
                .await?;
            Ok(outcome
                .calls
                .iter()
                .any(|(_, how)| *how == Confirmed::Locked))
        }
        Entry::Other(attempt) => {
            let outcome = store
                .record_other(author.instance, &author.name, &[attempt])
                .await?;
            Ok(outcome
                .calls
                .iter()
                .any(|(_, moved)| *moved == Moved::Locked))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{decision::ParkReason, outcome::Class},
        store::record::{Confirmation, History, Next, Unconfirmed},
    };

    fn entries() -> Vec<Entry> {
        let confirmation = Confirmation {
            call: 7,
            leaf: "pay".into(),
            key: "k".into(),
            attempt: 2,
            generation: 1,
            status: 201,
            headers: "{}".into(),
            body: None,
            body_raw: Some(vec![0, 255, 10].into()),
            truncated: false,
            request_hash: [9; 32],
            took: Duration::from_millis(12),
        };
        let attempt = Unconfirmed {
            call: 8,
            round: 3,
            leaf: "pay".into(),
            key: "l".into(),
            attempt: 1,
            next: Next::Park(ParkReason::NoProbe),
            spends: true,
            history: Some(History {
                class: Class::InDoubt,
                status: None,
                error: Some("a line\nbreak".into()),
                excerpt: None,
                took: Duration::ZERO,
            }),
        };
        vec![Entry::Confirmed(confirmation), Entry::Other(attempt)]
    }

    #[test]
    fn what_is_written_is_read_and_a_torn_last_line_costs_only_itself() {
        let folder = std::env::temp_dir().join(format!("leafhopper-journal-{}", Uuid::new_v4()));
        fs::create_dir_all(&folder).unwrap();
        let author = Author {
            instance: Uuid::from_u128(1),
            name: "host:1".into(),
        };
        let path = write_file(&folder, &author, &entries()).unwrap();
        assert_eq!(journals(&folder), std::slice::from_ref(&path));
        let content = fs::read(&path).unwrap();
        let (read, kept, found) = parse(&content).unwrap();
        assert_eq!(kept, 2);
        assert_eq!(read, author);
        assert_eq!(format!("{found:?}"), format!("{:?}", entries()));
        let (_, kept, found) = parse(&content[..content.len() - 5]).unwrap();
        assert_eq!((kept, found.len()), (1, 1));
        assert!(parse(b"").is_none());
        let text = String::from_utf8(content).unwrap();
        let newer = text.replacen("\"Confirmed\"", "\"Newer\"", 1);
        assert_ne!(text, newer);
        let (_, kept, found) = parse(newer.as_bytes()).unwrap();
        assert_eq!((kept, found.len()), (2, 1), "none behind it is lost");
        fs::remove_dir_all(&folder).unwrap();
    }
}
