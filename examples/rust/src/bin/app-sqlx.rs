//! The app with sqlx; `follow` reacts by LISTEN.
//!
//! ```text
//! app-sqlx create NAME           one call
//! app-sqlx launch NAME AMOUNT    a batch: site and charge, or neither
//! app-sqlx follow                marks sites as live or failed, until Ctrl-C
//! ```

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool, postgres::PgListener};
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
    async fn insert(self, connection: &mut PgConnection) -> sqlx::Result<i64> {
        let sql = "INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, run_when)
                   VALUES ($1, $2, $3, $4, $5, $6) RETURNING id";
        sqlx::query_scalar(sql)
            .bind(self.leaf)
            .bind(self.key)
            .bind(self.path)
            .bind(self.body)
            .bind(self.batch)
            .bind(self.run_when)
            .fetch_one(connection)
            .await
    }
}

/// The site, the call that makes it, and what the account pays for it: all of it, or nothing.
async fn new_site(tx: &mut PgConnection, name: &str, batch: Option<Uuid>) -> sqlx::Result<i64> {
    let insert = "INSERT INTO site (name, batch_id) VALUES ($1, $2) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(name).bind(batch);
    let site: i64 = insert.fetch_one(&mut *tx).await?;
    let (key, body) = (format!("site:{site}"), json!({ "name": name }));
    let call = Call { leaf: "hosting", key, path: "/sites", body, batch, run_when: "ready" };
    let id = call.insert(tx).await?;
    let update = sqlx::query("UPDATE site SET call_id = $1 WHERE id = $2").bind(id).bind(site);
    update.execute(&mut *tx).await?;
    // Without credit this fails, and no call is made: a transaction that is dropped is rolled back.
    let pay = sqlx::query("UPDATE account SET credit = credit - 1 WHERE id = 1");
    pay.execute(tx).await?;
    Ok(site)
}

async fn create(pool: &PgPool, name: &str) -> Result<()> {
    let mut tx = pool.begin().await?;
    let site = new_site(&mut tx, name, None).await?;
    tx.commit().await?;
    println!("site {site} is requested");
    Ok(())
}

async fn launch(pool: &PgPool, name: &str, amount: i64) -> Result<()> {
    let id = Uuid::new_v4();
    let batch = Some(id);
    let mut tx = pool.begin().await?;
    let site = new_site(&mut tx, name, batch).await?;
    let charge = json!({ "amount": amount });
    for (leaf, what, path, body, run_when) in [
        ("pay", "charge", "/charges", charge, "ready"),
        ("mail", "welcome", "/messages", json!({ "say": "welcome" }), "batch_succeeded"),
        ("mail", "sorry", "/messages", json!({ "say": "sorry" }), "batch_failed"),
    ] {
        let key = format!("site:{site}:{what}");
        Call { leaf, key, path, body, batch, run_when }.insert(&mut tx).await?;
    }
    tx.commit().await?;
    println!("site {site} is requested, in batch {id}");
    Ok(())
}

async fn follow(pool: &PgPool) -> Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all(["leafhopper_result", "leafhopper_call"]).await?;
    loop {
        // First, for what happened while nobody listened.
        let sql = "UPDATE site SET status = o.status, remote_id = o.remote_id
                     FROM site_outcome o WHERE o.site_id = site.id AND o.status IS NOT NULL
                   RETURNING site.name, site.status";
        let changed: Vec<(String, String)> = sqlx::query_as(sql).fetch_all(pool).await?;
        for (name, status) in changed {
            println!("{name} is {status}");
        }
        // A notification is a hint: it says that there is something, and may be lost with a connection.
        if let Ok(heard) = tokio::time::timeout(Duration::from_secs(30), listener.try_recv()).await
        {
            heard?;
        }
    }
}

async fn command(pool: &PgPool) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["create", name] => create(pool, name).await,
        ["launch", name, amount] => launch(pool, name, amount.parse()?).await,
        ["follow"] => follow(pool).await,
        _ => bail!("create NAME | launch NAME AMOUNT | follow"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    let ended = command(&pool).await;
    let refusal = ended.as_ref().err().and_then(|error| error.downcast_ref::<sqlx::Error>());
    match refusal.and_then(sqlx::Error::as_database_error) {
        Some(refused) if refused.is_check_violation() => bail!("nothing is requested: {refused}"),
        _ => ended,
    }
}
