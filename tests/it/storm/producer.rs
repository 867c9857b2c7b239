//! The storm's application: inserts calls as the kills go on, some of them for effects that others are for too and some
//! in batches, and cancels a few.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio_postgres::{Client, Error, NoTls};
use uuid::Uuid;

use super::{
    World,
    leaves::{NAMES, REFUSED},
};
use crate::harness::wait::fault_lasts;

/// Calls of one transaction.
const GROUP: u32 = 50;

/// With so many waiting, it waits too.
const BACKLOG_MAX: i64 = 3_000;

const PAUSE: Duration = Duration::from_millis(20);

/// One call in so many is the first of a batch; so a fifth of them are in one.
const BATCH_EACH: u32 = 15;
const BATCH_MAX: u32 = 6;

/// One batch in so many may have failures, and has one at least: so even a short storm has some that end as finished.
const ALLOWS_FAILURES_EACH: u32 = 4;

/// Unsealed batches stay so while there are at most so many.
const UNSEALED: usize = 4;

pub(super) async fn produce(world: Arc<World>) {
    let mut producer = Producer {
        chance: world.plan.chance(2),
        unsealed: VecDeque::new(),
    };
    let mut client = connected(&world).await;
    let mut inserted = 0;
    while !world.is_over() {
        if inserted >= world.wanted() {
            fault_lasts(PAUSE).await;
            continue;
        }
        match producer.group(&client, inserted).await {
            Ok(true) => {
                inserted += GROUP;
                world.counts.inserted.store(inserted, Ordering::SeqCst);
            }
            Ok(false) => fault_lasts(PAUSE).await,
            // Whether the group was committed is not known: it is inserted again, with the same keys.
            Err(_) => client = connected(&world).await,
        }
    }
    let seal = "SELECT leafhopper.seal(id) FROM leafhopper.batch WHERE NOT sealed";
    while client.batch_execute(seal).await.is_err() {
        client = connected(&world).await;
    }
}

struct Producer {
    chance: fastrand::Rng,
    /// Batches that are still to be sealed.
    unsealed: VecDeque<Uuid>,
}

/// What is inserted together.
#[derive(Default)]
struct Group {
    calls: Vec<String>,
    /// Rows of batches that are not as usual.
    batch_rows: Vec<String>,
    batches: Vec<Uuid>,
    unsealed: Vec<Uuid>,
    /// The batch that was begun last may have failures.
    allows_failures: bool,
}

impl Producer {
    /// Inserts a group; `false` where enough are waiting already.
    async fn group(&mut self, client: &Client, first: u32) -> Result<bool, Error> {
        let waiting = "SELECT count(*) FROM leafhopper.dispatch \
                        WHERE state = 'pending' AND held IS DISTINCT FROM 'batch'";
        if client.query_one(waiting, &[]).await?.get::<_, i64>(0) > BACKLOG_MAX {
            return Ok(false);
        }
        let group = self.made(first);
        let batches = if group.batch_rows.is_empty() {
            String::new()
        } else {
            format!(
                "WITH batches AS (INSERT INTO leafhopper.batch (id, sealed, allow_failures, undo_order) VALUES {}) ",
                group.batch_rows.join(", ")
            )
        };
        let calls = group.calls.join(", ");
        let sql = format!("{batches}{} VALUES {calls} RETURNING id", insert());
        let ids = client.query(&sql, &[]).await?;
        self.unsealed.extend(group.unsealed);
        if self.chance.u32(..3) == 0 {
            let id: i64 = ids[self.chance.usize(..ids.len())].get(0);
            said(
                client,
                &format!("SELECT leafhopper.cancel({id}, 'by chance')"),
            )
            .await?;
        }
        for batch in group.batches {
            if self.chance.u32(..6) == 0 {
                fault_lasts(Duration::from_millis(self.chance.u64(..30))).await;
                let cancel = format!("SELECT leafhopper.cancel_batch('{batch}', 'by chance')");
                said(client, &cancel).await?;
            }
        }
        while self.unsealed.len() > UNSEALED {
            self.goes_on(client, first).await?;
        }
        Ok(true)
    }

    fn made(&mut self, first: u32) -> Group {
        let mut group = Group::default();
        let mut batch = None;
        let mut left = 0;
        for number in first..first + GROUP {
            if left == 0 && self.chance.u32(..BATCH_EACH) == 0 {
                left = self.chance.u32(1..=BATCH_MAX);
                batch = Some(self.batch(&mut group));
            }
            // One in ten is for an effect that another call, just before it, is for.
            let effect = match self.chance.u32(..10) {
                0 if number > 10 => number - self.chance.u32(1..10),
                _ => number,
            };
            group.calls.push(self.call(effect, "", batch, "ready"));
            if let Some(id) = batch {
                left -= 1;
                if left == 0 || number + 1 == first + GROUP {
                    self.ends(&mut group, number, id);
                    batch = None;
                    left = 0;
                }
            }
        }
        group
    }

    fn batch(&mut self, group: &mut Group) -> Uuid {
        let id = Uuid::new_v4();
        group.batches.push(id);
        let one_in = |chance: &mut fastrand::Rng, many| chance.u32(..many) == 0;
        let chance = &mut self.chance;
        let (unsealed, allow_failures, any) = (
            one_in(chance, 4),
            one_in(chance, ALLOWS_FAILURES_EACH),
            one_in(chance, 4),
        );
        group.allows_failures = allow_failures;
        if unsealed || allow_failures || any {
            let order = if any { "any" } else { "newest_first" };
            let row = format!("('{id}', {}, {allow_failures}, '{order}')", !unsealed);
            group.batch_rows.push(row);
        }
        if unsealed {
            group.unsealed.push(id);
        }
        id
    }

    /// A batch's last calls: one that fails, and follow-ups.
    fn ends(&mut self, group: &mut Group, number: u32, batch: Uuid) {
        if group.allows_failures || self.chance.u32(..4) == 0 {
            let number = number + self.chance.u32(..5);
            let call = self.call(number, REFUSED, Some(batch), "ready");
            group.calls.push(call);
        }
        for phase in ["batch_succeeded", "batch_failed", "batch_settled"] {
            if self.chance.bool() {
                let leaf = number + self.chance.u32(..5);
                let call = self.call(leaf, phase, Some(batch), phase);
                group.calls.push(call);
            }
        }
    }

    /// The oldest batch that is unsealed gets perhaps another call, and its seal.
    async fn goes_on(&mut self, client: &Client, number: u32) -> Result<(), Error> {
        let Some(batch) = self.unsealed.pop_front() else {
            return Ok(());
        };
        if self.chance.bool() {
            let number = number + self.chance.u32(..GROUP);
            let later = self.call(number, "later", Some(batch), "ready");
            client
                .batch_execute(&format!("{} VALUES {later}", insert()))
                .await?;
        }
        said(client, &format!("SELECT leafhopper.seal('{batch}')")).await
    }

    /// The number says which leaf it is for; the last word of its key is that number.
    fn call(&mut self, number: u32, kind: &str, batch: Option<Uuid>, run_when: &str) -> String {
        let leaf = NAMES[(number % 5) as usize];
        let method = if leaf == "put" { "PUT" } else { "POST" };
        let key = match kind {
            "" => format!("{leaf} {number}"),
            kind => format!("{leaf} {kind} {number}"),
        };
        let priority = self.chance.u32(..3);
        let (named, batch) = match batch {
            Some(id) => (format!(", \"batch\": \"{id}\""), format!("'{id}'")),
            None => (String::new(), "NULL".to_owned()),
        };
        format!(
            "('{leaf}', '{key}', '{method}', '/things', \
             '{{\"key\": \"{key}\", \"phase\": \"{run_when}\"{named}}}', {priority}, {batch}, '{run_when}')"
        )
    }
}

fn insert() -> &'static str {
    "INSERT INTO leafhopper.outbox (leaf, key, method, path, body, priority, batch_id, run_when)"
}

/// A word that may come too late, or too early: then it is refused.
async fn said(client: &Client, sql: &str) -> Result<(), Error> {
    match client.batch_execute(sql).await {
        Err(error) if error.as_db_error().is_none() => Err(error),
        _ => Ok(()),
    }
}

/// A connection, as soon as the server takes one.
async fn connected(world: &World) -> Client {
    loop {
        if let Ok((client, connection)) = tokio_postgres::connect(&world.url, NoTls).await {
            tokio::spawn(connection);
            return client;
        }
        fault_lasts(PAUSE).await;
    }
}
