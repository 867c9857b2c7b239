//! Records what attempts came to: whatever is ready goes into one transaction, several at a time.
//!
//! No timer: an idle recorder writes at once, a busy one finds a larger group each time. What can't be
//! recorded is tried again until the database is back; its attempt waits here with its slot taken, so work
//! stops instead of piling up. A group that meets a lock or a row the database refuses is split, until the
//! one in the way is alone and waits, or loses its body, by itself.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{context::Shared, driver::backoff, entry::Entry};
use crate::{
    domain::call::CallId,
    observe::Observation,
    shutdown::Tasks,
    store::{
        StoreError,
        record::{Confirmed, Moved, Next},
    },
};

/// Groups under way at once, each on a connection of its own.
const WRITERS: usize = 2;

/// A group that takes longer than this waits for somebody else: another one is written beside it.
const HELD_UP: Duration = Duration::from_millis(20);

/// Calls in one group at most.
const GROUP_MAX: usize = 512;

/// Bytes of bodies in one group, but for its last: the statement that they are written with holds them once more.
const GROUP_BYTES: usize = 1024 * 1024;

/// What another transaction keeps from being recorded for so long is said, and again and again after the other.
const LONG: Duration = Duration::from_secs(10);
const SAID_EACH: Duration = Duration::from_secs(300);

/// As the process ends, so long it waits for the answer to what is just being written, and then keeps it for the journal.
const LAST: Duration = Duration::from_secs(3);

/// What ends the writers.
#[derive(Debug, Clone)]
struct Ends {
    /// Nothing more is begun.
    end: CancellationToken,
    /// [`LAST`] is over: nothing is waited for any more.
    last: CancellationToken,
}

/// Something to record, and who waits for it.
#[derive(Debug)]
pub(crate) struct Recording {
    entry: Entry,
    done: oneshot::Sender<Recorded>,
}

/// The recorder's end of the queue.
pub(crate) type Recordings = mpsc::UnboundedReceiver<Recording>;

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recorded {
    Confirmed(Confirmed),
    Moved(Next, Moved),
    /// The process ends without having recorded it.
    Nothing,
}

/// The queue. It is bounded by the slots: each attempt waits for its own recording.
pub(crate) fn channel() -> (mpsc::UnboundedSender<Recording>, Recordings) {
    mpsc::unbounded_channel()
}

/// Records it, and says what became of it.
pub(super) async fn record(context: &Shared, entry: Entry) -> Recorded {
    let (done, recorded) = oneshot::channel();
    if context.recorder.send(Recording { entry, done }).is_err() {
        return Recorded::Nothing;
    }
    recorded.await.unwrap_or(Recorded::Nothing)
}

/// Spawns the writers; they end when `end` is cancelled, after all attempts have.
pub(super) fn spawn(
    tasks: &Tasks,
    context: &Shared,
    recordings: Recordings,
    end: &CancellationToken,
) {
    let queue = Arc::new(Mutex::new(recordings));
    let turn = Arc::new(Semaphore::new(1));
    // One moment for all that is being written: what follows on the last of it is in time for the journal.
    let ends = Ends {
        end: end.clone(),
        last: CancellationToken::new(),
    };
    let Ends { end, last } = ends.clone();
    tasks.spawn("recorder's end", async move {
        end.cancelled().await;
        tokio::time::sleep(LAST).await;
        last.cancel();
    });
    for _ in 0..WRITERS {
        let (queue, context, ends) = (Arc::clone(&queue), context.clone(), ends.clone());
        let turn = Arc::clone(&turn);
        let alone = tasks.clone();
        tasks.spawn_loop("recorder", ends.end.clone(), async move {
            loop {
                let mut group = Vec::new();
                let filled = fill(&queue, &turn, &mut group);
                tokio::select! {
                    () = ends.end.cancelled() => {
                        // What nobody could record goes to the journal.
                        for recording in group {
                            context.keep_for_journal(recording.entry);
                        }
                        let mut queue = queue.lock().await;
                        while let Ok(recording) = queue.try_recv() {
                            context.keep_for_journal(recording.entry);
                        }
                        return;
                    }
                    turn = filled => {
                        write(&context, &alone, group, &ends).await;
                        drop(turn);
                    }
                }
            }
        });
    }
}

/// Waits for something to record, then takes all that is ready.
///
/// One large group costs less than two small ones. So while another writer is at it, its end is waited for, and
/// meanwhile there is more; unless something holds it up.
async fn fill<'turn>(
    queue: &Mutex<Recordings>,
    turn: &'turn Semaphore,
    group: &mut Vec<Recording>,
) -> Option<SemaphorePermit<'turn>> {
    let mut queue = queue.lock().await;
    queue.recv_many(group, 1).await;
    let turn = tokio::time::timeout(HELD_UP, turn.acquire()).await;
    let mut bytes: usize = group.iter().map(|recording| recording.entry.size()).sum();
    while group.len() < GROUP_MAX
        && bytes < GROUP_BYTES
        && let Ok(recording) = queue.try_recv()
    {
        bytes += recording.entry.size();
        group.push(recording);
    }
    turn.ok().and_then(Result::ok)
}

/// Writes a group: first the confirmations, then the rest.
async fn write(context: &Shared, alone: &Tasks, group: Vec<Recording>, ends: &Ends) {
    // A call that was taken over and claimed again can have two attempts here; each is a statement's of its own,
    // so that the second one meets what the first has recorded.
    let mut calls = HashSet::new();
    let (group, again): (Vec<_>, Vec<_>) = group
        .into_iter()
        .partition(|r| calls.insert(r.entry.call()));
    let (confirmed, other): (Vec<_>, Vec<_>) = group
        .into_iter()
        .partition(|r| matches!(r.entry, Entry::Confirmed(_)));
    let again = again.into_iter().map(|recording| vec![recording]);
    let mut failures = 0;
    for part in [confirmed, other].into_iter().chain(again) {
        let mut waiting = vec![part];
        while let Some(part) = waiting.pop().filter(|part| !part.is_empty()) {
            match try_group(context, part, ends).await {
                Ok(locked) => {
                    failures = 0;
                    for recording in locked {
                        one_by_itself(context, alone, recording, ends);
                    }
                }
                Err((part, None)) => {
                    waiting.push(part);
                    keep(context, waiting.into_iter().flatten());
                    break;
                }
                Err((mut part, Some(error))) => match (part.len(), error.code()) {
                    // It may wait for as long as it takes, and nobody waits behind it.
                    (1, _) => {
                        if let Some(recording) = part.pop() {
                            one_by_itself(context, alone, recording, ends);
                        }
                    }
                    // One of them is in the way.
                    (_, Some(_)) => {
                        let half = part.split_off(part.len() / 2);
                        waiting.push(half);
                        waiting.push(part);
                    }
                    // The database is away: everything waits, this writer too.
                    (_, None) => {
                        failures += 1;
                        waiting.push(part);
                        tokio::select! {
                            () = ends.end.cancelled() => {
                                keep(context, waiting.into_iter().flatten());
                                break;
                            }
                            () = tokio::time::sleep(backoff().delay(failures, None)) => {}
                        }
                    }
                },
            }
        }
    }
}

/// The process ends: what is not known to be recorded is for the journal.
fn keep(context: &Shared, recordings: impl IntoIterator<Item = Recording>) {
    for recording in recordings {
        context.keep_for_journal(recording.entry);
    }
}

fn one_by_itself(context: &Shared, alone: &Tasks, recording: Recording, ends: &Ends) {
    let (context, ends) = (context.clone(), ends.clone());
    alone.spawn("record one", async move {
        until_recorded(&context, recording, &ends).await;
    });
}

/// Tries until it is recorded, or the process ends without it.
async fn until_recorded(context: &Shared, recording: Recording, ends: &Ends) {
    let mut failures = 0;
    let mut left = vec![recording];
    let mut say_at = Instant::now() + LONG;
    loop {
        let is_long = Instant::now() >= say_at;
        left = match try_group(context, left, ends).await {
            Ok(locked) => locked,
            Err((group, None)) => return keep(context, group),
            Err((mut group, Some(error))) => {
                let give_up = |recording: &mut Recording| recording.entry.give_up_content();
                if error.is_content() && !group.iter_mut().all(give_up) {
                    context.records_work.store(false, Ordering::SeqCst);
                    context.failed(&error);
                } else if error.is_contention() && is_long {
                    context.failed(&error);
                }
                group
            }
        };
        if left.is_empty() {
            return;
        }
        if is_long {
            say_at += SAID_EACH;
            for recording in &left {
                let call = recording.entry.call();
                tracing::warn!(
                    call.id = call,
                    "call {call} was answered, and can't be recorded: another transaction holds its row"
                );
            }
        }
        failures += 1;
        tokio::select! {
            () = ends.end.cancelled() => return keep(context, left),
            () = tokio::time::sleep(backoff().delay(failures, None)) => {}
        }
    }
}

/// Records a group of one kind. Gives what is locked by another transaction, to be tried again; on an error
/// the whole group. Without an error the process ends, and the database has not answered.
async fn try_group(
    context: &Shared,
    group: Vec<Recording>,
    ends: &Ends,
) -> Result<Vec<Recording>, (Vec<Recording>, Option<StoreError>)> {
    let started = Instant::now();
    let outcome = tokio::select! {
        biased;
        // Where it takes effect all the same, the journal's entry is recorded already, or decided by something newer.
        () = ends.last.cancelled() => return Err((group, None)),
        outcome = write_group(context, &group) => outcome,
    };
    let fault = outcome.as_ref().err().filter(|error| is_fault(error));
    context
        .records_work
        .store(fault.is_none(), Ordering::SeqCst);
    let mut outcomes = match outcome {
        Ok(outcomes) => outcomes,
        Err(error) => {
            if is_fault(&error) {
                context.failed(&error);
            }
            return Err((group, Some(error)));
        }
    };
    context.worked();
    context.observer.emit(Observation::Recorded {
        calls: group.len(),
        took: started.elapsed(),
    });
    let mut locked = Vec::new();
    for recording in group {
        let call = recording.entry.call();
        let at = outcomes.iter().position(|(recorded, _)| *recorded == call);
        match at.map(|at| outcomes.swap_remove(at).1) {
            Some(Recorded::Confirmed(Confirmed::Locked) | Recorded::Moved(_, Moved::Locked))
            | None => {
                locked.push(recording);
            }
            // Nobody waits any more where the process is about to end.
            Some(recorded) => recording.done.send(recorded).unwrap_or_default(),
        }
    }
    Ok(locked)
}

/// A lock or a refused row is no fault of the database; whatever else keeps an answer from being recorded (it is
/// away, a full disk, a right that was taken away, an app's trigger that fails) has to be seen.
fn is_fault(error: &StoreError) -> bool {
    !error.is_contention() && !error.is_content()
}

async fn write_group(
    context: &Shared,
    group: &[Recording],
) -> Result<Vec<(CallId, Recorded)>, StoreError> {
    let identity = &context.identity;
    let mut confirmations = Vec::new();
    let mut others = Vec::new();
    for recording in group {
        match &recording.entry {
            Entry::Confirmed(confirmation) => confirmations.push(confirmation),
            Entry::Other(attempt) => others.push(attempt),
        }
    }
    let mut outcomes = Vec::with_capacity(group.len());
    let mut frees = false;
    if !confirmations.is_empty() {
        let recorded = context.store.record_plain(&confirmations).await?;
        frees |= recorded.frees;
        let recorded: HashSet<CallId> = recorded.calls.into_iter().collect();
        let plain = recorded.iter();
        outcomes.extend(plain.map(|call| (*call, Recorded::Confirmed(Confirmed::Recorded))));
        confirmations.retain(|confirmation| !recorded.contains(&confirmation.call));
    }
    if !confirmations.is_empty() {
        let recorded = context
            .store
            .record_confirmed(&identity.name, &confirmations)
            .await?;
        frees |= recorded.frees;
        outcomes.extend(
            recorded
                .calls
                .into_iter()
                .map(|(call, how)| (call, Recorded::Confirmed(how))),
        );
    }
    if !others.is_empty() {
        let recorded = context
            .store
            .record_other(identity.id, &identity.name, &others)
            .await?;
        frees |= recorded.frees;
        for (call, moved) in recorded.calls {
            if let Some(attempt) = others.iter().find(|attempt| attempt.call == call) {
                outcomes.push((call, Recorded::Moved(attempt.next, moved)));
            }
        }
    }
    if frees {
        context.nudges.work.give();
    }
    Ok(outcomes)
}
