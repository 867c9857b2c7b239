//! The storm's application: inserts calls as the kills go on, some of them for effects that others are for too,
//! and cancels a few.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio_postgres::{Client, NoTls};

use super::{World, leaves::NAMES};
use crate::harness::wait::fault_lasts;

/// Calls of one transaction.
const GROUP: u32 = 50;

/// With so many waiting, it waits too.
const BACKLOG_MAX: i64 = 3_000;

const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn produce(world: Arc<World>) {
    let mut chance = world.plan.chance(2);
    let mut client = connected(&world).await;
    let mut inserted = 0;
    while !world.is_over() {
        if inserted >= world.wanted() {
            fault_lasts(PAUSE).await;
            continue;
        }
        match group(&client, &mut chance, inserted).await {
            Ok(true) => {
                inserted += GROUP;
                world.counts.inserted.store(inserted, Ordering::SeqCst);
            }
            Ok(false) => fault_lasts(PAUSE).await,
            // Whether the group was committed is not known: it is inserted again, with the same keys.
            Err(_) => client = connected(&world).await,
        }
    }
}

/// Inserts a group; `false` where enough are waiting already.
async fn group(
    client: &Client,
    chance: &mut fastrand::Rng,
    first: u32,
) -> Result<bool, tokio_postgres::Error> {
    let waiting = "SELECT count(*) FROM leafhopper.dispatch WHERE state = 'pending'";
    if client.query_one(waiting, &[]).await?.get::<_, i64>(0) > BACKLOG_MAX {
        return Ok(false);
    }
    let rows: Vec<String> = (first..first + GROUP)
        .map(|number| {
            // One in ten is for an effect that another call, just before it, is for.
            let number = match chance.u32(..10) {
                0 if number > 10 => number - chance.u32(1..10),
                _ => number,
            };
            let leaf = NAMES[(number % 5) as usize];
            let method = if leaf == "put" { "PUT" } else { "POST" };
            let priority = chance.u32(0..3);
            format!(
                "('{leaf}', '{leaf} {number}', '{method}', '/things', '{{\"key\": \"{leaf} {number}\"}}', {priority})"
            )
        })
        .collect();
    let sql = format!(
        "INSERT INTO leafhopper.outbox (leaf, key, method, path, body, priority) VALUES {} RETURNING id",
        rows.join(", ")
    );
    let ids = client.query(&sql, &[]).await?;
    if chance.u32(..3) == 0 {
        let id: i64 = ids[chance.usize(..ids.len())].get(0);
        let cancel = format!("SELECT leafhopper.cancel({id}, 'by chance')");
        // It may be at its end already, or nobody may know whether it was executed: then it refuses.
        match client.batch_execute(&cancel).await {
            Err(error) if error.as_db_error().is_none() => return Err(error),
            _ => {}
        }
    }
    Ok(true)
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
