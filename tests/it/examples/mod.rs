//! The examples as they stand in `examples/`: each is run, and its calls are sent by a real sidecar.
//!
//! `.ci/clients` gets what they run with; see [`crate::clients`] for what is not there.

mod languages;
mod own_outbox;
mod shop;

use serde_json::json;

use crate::harness::{
    app::{App, literal},
    leaf::Gate,
    wait::until,
};
use shop::{Shop, example};

/// How the app hears of a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaction {
    /// `follow` listens, and looks by itself only after longer than a test waits.
    Listen,
    /// `follow` polls the results by seq.
    Poll,
    /// The database's own trigger.
    Trigger,
}

/// How the app is asked for a site.
enum Front {
    /// By its commands `create NAME` and `launch NAME AMOUNT`.
    Commands(Vec<String>),
    /// By a POST to this url.
    Http(String),
}

impl Front {
    /// Asks for a site; with an amount, for its charge, too. An `Err` is what was said instead.
    async fn ask(&self, shop: &Shop, name: &str, amount: Option<u32>) -> Result<(), String> {
        match self {
            Self::Commands(words) => {
                let command = if amount.is_some() { "launch" } else { "create" };
                let amount = amount.map(|amount| amount.to_string());
                let more = [command, name].into_iter().chain(amount.as_deref());
                let said = shop.run(&with(words, more)).await?;
                assert!(said.contains("is requested"), "{said}");
                Ok(())
            }
            Self::Http(url) => {
                let mut wanted = json!({ "name": name });
                if let Some(amount) = amount {
                    wanted["amount"] = amount.into();
                }
                let client = reqwest::Client::builder().no_proxy().build().unwrap();
                let sent = client.post(url).body(wanted.to_string()).send().await;
                let answer = sent.unwrap();
                let status = answer.status().as_u16();
                let text = answer.text().await.unwrap();
                if status == 202 { Ok(()) } else { Err(text) }
            }
        }
    }
}

/// The words of a command, with these behind them.
fn with<'a>(words: &[String], more: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let more = more.into_iter().map(str::to_owned);
    words.iter().cloned().chain(more).collect()
}

/// An example that is a program with the commands `create`, `launch`, and `follow` or `show`.
async fn program(words: Vec<String>, reaction: Reaction) {
    let shop = Shop::with_tables().await;
    let follower = if reaction == Reaction::Trigger {
        shop.app.execute(&example("trigger/1-app.sql")).await;
        shop.bed.app.execute(&example("trigger/2-owner.sql")).await;
        None
    } else {
        Some(shop.start(&with(&words, ["follow"])))
    };
    sells_sites(&shop, &Front::Commands(words.clone()), reaction).await;
    if reaction == Reaction::Trigger {
        for (name, shown) in [("alpha", "alpha is live"), ("gamma", "gamma is failed")] {
            let said = shop.run(&with(&words, ["show", name])).await.unwrap();
            assert!(said.starts_with(shown), "{said}");
        }
    }
    drop(follower);
    shop.close().await;
}

/// What every example does, whatever it is written in.
async fn sells_sites(shop: &Shop, front: &Front, reaction: Reaction) {
    a_call_is_confirmed(shop, front).await;
    a_rollback_makes_no_call(shop, front).await;
    a_batch_is_torn_down(shop, front).await;
    a_batch_succeeds(shop, front).await;
    if reaction == Reaction::Poll {
        what_is_committed_late_is_read_too(shop, front).await;
    }
}

async fn a_call_is_confirmed(shop: &Shop, front: &Front) {
    shop.credit(1).await;
    shop.makes_the_next_site("h-alpha");
    front.ask(shop, "alpha", None).await.unwrap();
    let site = shop.until_site("alpha", "live").await;
    assert_eq!(site["remote_id"], "h-alpha");
    let key = format!("site:{}", site["id"]);
    let requests = shop.bed.leaf.requests(&key);
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0].json(), json!({ "name": "alpha" }));
}

/// That the account has no credit left shows only after the call was inserted.
async fn a_rollback_makes_no_call(shop: &Shop, front: &Front) {
    let refused = front.ask(shop, "beta", None).await.unwrap_err();
    let said = ["nothing is requested", "no credit"];
    assert!(said.iter().any(|said| refused.contains(said)), "{refused}");
    let rows = "SELECT (SELECT count(*) FROM leafhopper.outbox) AS calls, (SELECT count(*) FROM site) AS sites";
    assert_eq!(
        shop.app.rows(rows).await,
        [json!({ "calls": 1, "sites": 1 })]
    );
    shop.credit(10).await;
}

/// The charge is refused after the site was made: the site is undone, and then somebody is told.
async fn a_batch_is_torn_down(shop: &Shop, front: &Front) {
    let gate = Gate::closed();
    shop.refuses_charges(&gate);
    shop.makes_the_next_site("h-gamma");
    front.ask(shop, "gamma", Some(500)).await.unwrap();
    gate.until_arrived(1).await;
    let id = "SELECT id FROM site WHERE name = 'gamma'";
    let id: i64 = shop.app.client().query_one(id, &[]).await.unwrap().get(0);
    until("the site is made", async || {
        let results = shop.bed.app.results("hosting", &format!("site:{id}")).await;
        if results.len() == 1 {
            Ok(())
        } else {
            Err(results)
        }
    })
    .await;
    gate.open();
    shop.until_site("gamma", "failed").await;
    until("the batch is torn down, and somebody is told", async || {
        let undone = shop.asked("DELETE", "/hosting/sites/h-gamma").len();
        let told = ["sorry", "welcome"].map(|say| format!("site:{id}:{say}"));
        let told = told.map(|key| shop.bed.leaf.effects(&key));
        let batch = "SELECT b.state FROM leafhopper.batch b JOIN site s ON s.batch_id = b.id \
                      WHERE s.name = 'gamma'";
        let seen = (undone, told, shop.app.rows(batch).await);
        let all = (1, [1, 0], vec![json!({ "state": "cancelled" })]);
        if seen == all { Ok(()) } else { Err(seen) }
    })
    .await;
    shop.bed.leaf.behaves();
}

async fn a_batch_succeeds(shop: &Shop, front: &Front) {
    shop.makes_the_next_site("h-delta");
    front.ask(shop, "delta", Some(5)).await.unwrap();
    let site = shop.until_site("delta", "live").await;
    assert_eq!(site["remote_id"], "h-delta");
    let key = |what: &str| format!("site:{}:{what}", site["id"]);
    let charge = shop.bed.leaf.until_requests(&key("charge"), 1).await;
    assert_eq!(charge[0].json(), json!({ "amount": 5 }));
    shop.bed.leaf.until_requests(&key("welcome"), 1).await;
}

/// A result with a lower seq than one that was read already: its transaction ends later.
async fn what_is_committed_late_is_read_too(shop: &Shop, front: &Front) {
    let late = "INSERT INTO site (name, status) VALUES ('of late', 'requested') RETURNING id";
    let late: i64 = shop.app.client().query_one(late, &[]).await.unwrap().get(0);
    let slow = App::connect(&shop.bed.database.url).await;
    let key = literal(&format!("site:{late}"));
    slow.execute(&format!(
        "BEGIN; SELECT leafhopper.confirm('hosting', {key}, 201, '{{\"id\": \"h-late\"}}')"
    ))
    .await;
    shop.makes_the_next_site("h-zeta");
    front.ask(shop, "zeta", None).await.unwrap();
    shop.until_site("zeta", "live").await;
    slow.execute("COMMIT").await;
    let site = shop.until_site("of late", "live").await;
    assert_eq!(site["remote_id"], "h-late");
}
