//! The recipes of `deploy/leaves`, with the rows of their own examples, against a leaf that gives the documented answers.
//!
//! What is adopted has to come out as what is answered: the same compensation undoes both.

mod documented;
mod oddities;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{
    Bed,
    app::literal,
    leaf::{On, Reply, Request},
    sidecar::{Config, Sidecar},
    wait::until,
};
use documented::Recipe;

/// Those that are asked about what they don't know.
const PROBED: [&Recipe; 6] = [
    &documented::GITHUB,
    &documented::GITLAB,
    &documented::GITEA,
    &documented::FORGE,
    &documented::CLOUDFLARE,
    &documented::SLACK,
];

/// The recipe with a leaf of the test, and without its patience.
fn in_a_hurry(toml: &str, url: &str, here: &str) -> String {
    assert!(toml.contains(&format!("base_url = {url:?}")), "{toml}");
    let lines = toml.replace(url, here);
    let lines = lines.lines().map(|line| match line.split(" = ").next() {
        Some("settle") => "settle = \"20ms\"",
        Some("rate" | "retry") => "",
        _ => line,
    });
    lines.fold(String::new(), |text, line| text + line + "\n")
}

/// All of them at one leaf, each under the name of its own leaf.
async fn sidecar(bed: &Bed) -> Sidecar {
    let recipes = PROBED.into_iter().chain([&documented::STRIPE]);
    let mut config = Config::new(&bed.database.url)
        .toml("[retry]\ninitial = \"20ms\"\nmax = \"100ms\"\njitter = 0.0");
    let mut starter = Vec::new();
    for recipe in recipes {
        let here = format!("{}/{}", bed.leaf.url(), recipe.leaf);
        config = config.toml(&in_a_hurry(recipe.toml, recipe.url, &here));
        starter.push(recipe.secret);
    }
    let starter = starter.iter().fold(config.sidecar(), |starter, name| {
        starter.environment(name, "s3cret-of-it")
    });
    starter.start().await
}

/// A recipe at work, in a batch that stays open until it is cancelled.
struct Scene<'a> {
    bed: &'a Bed,
    recipe: &'a Recipe,
    key: String,
    batch: Uuid,
    call: i64,
}

impl<'a> Scene<'a> {
    fn on(bed: &'a Bed, recipe: &Recipe, path: &str) -> On<'a> {
        let path = path.split('?').next().unwrap();
        bed.leaf.on(&format!("/{}{path}", recipe.leaf))
    }

    /// An answer with the key in it.
    fn reply((status, text): (u16, &str), key: &str) -> Reply {
        let text = text.replace("KEY", key);
        if text.is_empty() {
            Reply::new(status)
        } else {
            Reply::json(status, &serde_json::from_str(&text).unwrap())
        }
    }

    /// The row of the recipe's example, under another key. `script` says what the leaf does, which undoes when asked.
    async fn begin(
        bed: &'a Bed,
        recipe: &'a Recipe,
        what: &str,
        script: impl FnOnce(&dyn Fn() -> On<'a>, &dyn Fn(u16, &str), &str),
    ) -> Self {
        let key = recipe.key.replace("42:", &format!("42:{what}:"));
        let key = key.replace("4711:", &format!("4711:{what}:"));
        let create = || Self::on(bed, recipe, recipe.create).method("POST");
        let asked = |status, text: &str| {
            let reply = Self::reply((status, text), &key);
            Self::on(bed, recipe, recipe.probe)
                .method("GET")
                .answers(reply);
        };
        create().answers(Self::reply(recipe.created, &key));
        script(&create, &asked, &key);
        let (method, path, _) = recipe.undo;
        let undone = Self::reply(recipe.undone, &key);
        Self::on(bed, recipe, path).method(method).answers(undone);

        let batch = Uuid::now_v7();
        bed.app
            .execute(&format!(
                "INSERT INTO leafhopper.batch (id, sealed) VALUES ('{batch}', false)"
            ))
            .await;
        let sql = example(recipe.toml).replace(recipe.key, &key);
        let sql = sql.replacen("outbox (", "outbox (batch_id, ", 1).replacen(
            "VALUES (",
            &format!("VALUES ('{batch}', "),
            1,
        );
        let row = bed
            .app
            .client()
            .query_one(&format!("{sql} RETURNING id"), &[])
            .await;
        Self {
            bed,
            recipe,
            batch,
            call: row
                .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
                .get(0),
            key,
        }
    }

    /// The requests about this call, by method and the beginning of the path.
    fn requests(&self, method: &str, path: &str) -> Vec<Request> {
        let path = format!(
            "/{}{}",
            self.recipe.leaf,
            path.replace("KEY", &encoded(&self.key))
        );
        let all = self.bed.leaf.all_requests();
        let fits = |request: &Request| request.method == method && request.path.starts_with(&path);
        all.into_iter().filter(fits).collect()
    }

    /// How often its create was sent, and no other's of this recipe.
    fn creates(&self) -> usize {
        let creates = self.requests("POST", self.recipe.create);
        let at = format!("/{}{}", self.recipe.leaf, self.recipe.create);
        let own = |request: &&Request| {
            request.path == at && String::from_utf8_lossy(&request.body).contains(&self.key)
        };
        creates.iter().filter(own).count()
    }

    async fn until_confirmed(&self, source: &str) {
        self.bed.app.until_state(self.call, "confirmed").await;
        let results = self.bed.app.results(self.recipe.leaf, &self.key).await;
        assert_eq!(results[0]["source"], source, "{results:#?}");
        assert_eq!(results[0]["weak"], false, "{results:#?}");
    }

    async fn until_parked(&self, reason: &str) {
        let call = self.bed.app.until_state(self.call, "parked").await;
        assert_eq!(call["reason"], reason, "{call:#?}");
    }

    /// The batch fails: what was confirmed is undone, by the request that the recipe is to make of it.
    async fn is_undone(&self) {
        let (method, path, body) = self.recipe.undo;
        let before = self.requests(method, path).len();
        let sql = format!(
            "SELECT leafhopper.cancel_batch('{}', 'they gave up')",
            self.batch
        );
        self.bed.app.execute(&sql).await;
        until("it is undone", async || {
            let results = self.bed.app.results(self.recipe.leaf, &self.key).await;
            let sql = format!(
                "SELECT path, state, reason, last_error FROM leafhopper.call WHERE leaf = {} AND key LIKE '%:undo:1'",
                literal(self.recipe.leaf)
            );
            match results[0]["undone_at"].as_str() {
                Some(_) => Ok(()),
                None => Err(self.bed.app.rows(&sql).await),
            }
        })
        .await;
        let undos = self.requests(method, path);
        assert_eq!(undos.len(), before + 1, "{undos:#?}");
        let undo = undos.last().unwrap();
        assert_eq!(undo.path, format!("/{}{path}", self.recipe.leaf));
        match body {
            Some(body) => assert_eq!(undo.json(), serde_json::from_str::<Value>(body).unwrap()),
            None => assert!(undo.body.is_empty(), "{undo:?}"),
        }
    }
}

/// As a template encodes a segment.
fn encoded(key: &str) -> String {
    key.replace(':', "%3A")
}

/// The INSERT in the comment at a recipe's head.
fn example(toml: &str) -> String {
    let lines = toml.lines().map(|line| line.trim_start_matches('#').trim());
    let mut lines = lines.skip_while(|line| !line.starts_with("INSERT INTO "));
    let mut sql = String::new();
    loop {
        let line = lines
            .next()
            .expect("a recipe has an INSERT that ends in `);`");
        sql += line;
        if let Some(whole) = sql.strip_suffix(';') {
            return whole.to_owned();
        }
        sql += "\n";
    }
}

#[tokio::test]
async fn what_is_answered_and_what_is_found_is_undone_alike() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    for recipe in PROBED {
        let answered = Scene::begin(&bed, recipe, "answered", |_, _, _| {}).await;
        answered.until_confirmed("response").await;
        answered.is_undone().await;
        let found = Scene::begin(&bed, recipe, "found", |create, asked, _| {
            create().times(1).resets();
            asked(200, recipe.found);
        });
        let found = found.await;
        found.until_confirmed("adopted").await;
        assert_eq!(found.creates(), 1);
        assert!(
            !found.requests("GET", recipe.probe).is_empty(),
            "{}",
            recipe.leaf
        );
        found.is_undone().await;
    }
}

#[tokio::test]
async fn what_is_not_there_or_is_not_ours_is_sent() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    for recipe in PROBED {
        for (what, (status, text)) in [("absent", recipe.absent), ("theirs", (200, recipe.theirs))]
        {
            let scene = Scene::begin(&bed, recipe, what, |create, asked, _| {
                create().times(1).does_nothing().resets();
                asked(status, text);
            });
            let scene = scene.await;
            scene.until_confirmed("response").await;
            assert_eq!(scene.creates(), 2, "{} {what}", recipe.leaf);
        }
    }
}

#[tokio::test]
async fn what_exists_is_adopted_if_it_is_ours() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    for recipe in PROBED {
        let Some(exists) = recipe.exists else {
            continue;
        };
        let ours = Scene::begin(&bed, recipe, "ours", |create, asked, key| {
            create().refuses(Scene::reply(exists, key));
            asked(200, recipe.found);
        });
        let ours = ours.await;
        ours.until_confirmed("adopted").await;
        let theirs = Scene::begin(&bed, recipe, "not-ours", |create, asked, key| {
            create().refuses(Scene::reply(exists, key));
            asked(200, recipe.theirs);
        });
        let theirs = theirs.await;
        theirs.until_parked("exists_unmatched").await;
        assert_eq!(
            (ours.creates(), theirs.creates()),
            (1, 1),
            "{}",
            recipe.leaf
        );
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_fails_the_call() {
    let bed = Bed::new().await;
    let _sidecar = sidecar(&bed).await;
    for recipe in PROBED {
        let no = Scene::begin(&bed, recipe, "invalid", |create, asked, _| {
            let slack = json!({ "ok": false, "error": "channel_not_found" });
            let refusal = match recipe.leaf {
                "slack-messages" => Reply::json(200, &slack),
                // That is also the status of what exists.
                "github-repos" | "forge-sites" => {
                    Reply::json(422, &json!({ "message": "Validation Failed" }))
                }
                _ => Reply::json(
                    400,
                    &json!({ "message": "no", "errors": [{ "code": 9000 }] }),
                ),
            };
            create().refuses(refusal);
            asked(recipe.absent.0, recipe.absent.1);
        });
        let no = no.await;
        bed.app.until_state(no.call, "failed").await;
        assert_eq!(no.creates(), 1, "{}", recipe.leaf);
    }
}
