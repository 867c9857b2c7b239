//! The app with tokio-postgres; `follow` reacts by LISTEN.
//!
//! ```text
//! app-tokio-postgres create NAME           one call
//! app-tokio-postgres launch NAME AMOUNT    a batch: site and charge, or neither
//! app-tokio-postgres follow                marks sites as live or failed, until Ctrl-C
//! ```

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_postgres::{
    AsyncMessage, Client, NoTls, Socket, Transaction, error::SqlState, tls::NoTlsStream,
};
use uuid::Uuid;

struct Call<'a> {
    leaf: &'a str,
    key: String,
    path: &'a str,
    body: Value,
    batch: Option<Uuid>,
    run_when: &'a str,
}

impl Call<'_> {
    async fn insert(self, tx: &Transaction<'_>) -> Result<i64, tokio_postgres::Error> {
        let sql = "INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, run_when)
                   VALUES ($1, $2, $3, $4, $5, $6) RETURNING id";
        let Self { leaf, key, path, body, batch, run_when } = self;
        let row = tx.query_one(sql, &[&leaf, &key, &path, &body, &batch, &run_when]).await?;
        Ok(row.get(0))
    }
}

/// The site, the call that makes it, and what the account pays for it: all of it, or nothing.
async fn new_site(
    tx: &Transaction<'_>,
    name: &str,
    batch: Option<Uuid>,
) -> Result<i64, tokio_postgres::Error> {
    let sql = "INSERT INTO site (name, batch_id) VALUES ($1, $2) RETURNING id";
    let site: i64 = tx.query_one(sql, &[&name, &batch]).await?.get(0);
    let (key, body) = (format!("site:{site}"), json!({ "name": name }));
    let call = Call { leaf: "hosting", key, path: "/sites", body, batch, run_when: "ready" };
    let id = call.insert(tx).await?;
    tx.execute("UPDATE site SET call_id = $1 WHERE id = $2", &[&id, &site]).await?;
    // Without credit this fails, and no call is made: a transaction that is dropped is rolled back.
    tx.execute("UPDATE account SET credit = credit - 1 WHERE id = 1", &[]).await?;
    Ok(site)
}

async fn create(client: &mut Client, name: &str) -> Result<()> {
    let tx = client.transaction().await?;
    let site = new_site(&tx, name, None).await?;
    tx.commit().await?;
    println!("site {site} is requested");
    Ok(())
}

async fn launch(client: &mut Client, name: &str, amount: i64) -> Result<()> {
    let id = Uuid::new_v4();
    let batch = Some(id);
    let tx = client.transaction().await?;
    let site = new_site(&tx, name, batch).await?;
    let charge = json!({ "amount": amount });
    for (leaf, what, path, body, run_when) in [
        ("pay", "charge", "/charges", charge, "ready"),
        ("mail", "welcome", "/messages", json!({ "say": "welcome" }), "batch_succeeded"),
        ("mail", "sorry", "/messages", json!({ "say": "sorry" }), "batch_failed"),
    ] {
        let key = format!("site:{site}:{what}");
        Call { leaf, key, path, body, batch, run_when }.insert(&tx).await?;
    }
    tx.commit().await?;
    println!("site {site} is requested, in batch {id}");
    Ok(())
}

async fn follow(client: &Client, woken: &Notify) -> Result<()> {
    client.batch_execute("LISTEN leafhopper_result; LISTEN leafhopper_call").await?;
    loop {
        // First, for what happened while nobody listened.
        let sql = "UPDATE site SET status = o.status, remote_id = o.remote_id
                     FROM site_outcome o WHERE o.site_id = site.id AND o.status IS NOT NULL
                   RETURNING site.name, site.status";
        for row in client.query(sql, &[]).await? {
            println!("{} is {}", row.get::<_, &str>(0), row.get::<_, &str>(1));
        }
        // A notification is a hint: it says that there is something, and may be lost with a connection.
        let _elapsed = tokio::time::timeout(Duration::from_secs(30), woken.notified()).await;
    }
}

/// Drives the connection, and wakes for each notification.
async fn drive(
    mut connection: tokio_postgres::Connection<Socket, NoTlsStream>,
    woken: &Notify,
) -> Result<()> {
    while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(_) = message? {
            woken.notify_one();
        }
    }
    bail!("the database has closed the connection")
}

async fn command(client: &mut Client, woken: &Notify) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["create", name] => create(client, name).await,
        ["launch", name, amount] => launch(client, name, amount.parse()?).await,
        ["follow"] => follow(client, woken).await,
        _ => bail!("create NAME | launch NAME AMOUNT | follow"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let woken = Notify::new();
    let ended = tokio::select! {
        ended = command(&mut client, &woken) => ended,
        ended = drive(connection, &woken) => ended,
    };
    let violated = |error: &tokio_postgres::Error| error.code() == Some(&SqlState::CHECK_VIOLATION);
    match ended {
        Err(error) if error.downcast_ref().is_some_and(violated) => {
            bail!("nothing is requested: {error:#}")
        }
        ended => ended,
    }
}
