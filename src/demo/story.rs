//! The demo's story, step by step: what the app does, what goes wrong, and where each call ends.

use std::io::Write;

use super::{
    app::{App, until},
    leaf::DemoLeaf,
    sidecar::Sidecar,
};

pub(super) type Out<'a> = &'a mut (dyn Write + Send);

/// Who takes part from the beginning to the end.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) app: App,
    pub(super) leaf: DemoLeaf,
}

impl Story {
    /// Tells it, and leaves the sidecar running. `true` where the leaves' ledger and the database agree.
    pub(super) async fn tell(&self, sidecar: &mut Sidecar, out: Out<'_>) -> anyhow::Result<bool> {
        let table = "CREATE TABLE site (id int PRIMARY KEY, name text)";
        self.app.sql(table).await?;
        sidecar.start()?;
        self.happy_path(out).await?;
        self.trouble(out).await?;
        self.crash(sidecar, out).await?;
        self.batch(out).await?;
        self.person(sidecar, out).await?;
        self.reckoning(out).await
    }

    async fn happy_path(&self, out: Out<'_>) -> anyhow::Result<()> {
        let sql = r#"INSERT INTO site VALUES (42, 'Ada''s shop');
   INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES
     ('git', 'site:42:repo',   '/repos',   '{"name": "ada",  "description": "site:42:repo"}'),
     ('pay', 'site:42:charge', '/charges', '{"amount": 4200, "description": "site:42:charge"}');"#;
        writeln!(
            out,
            "\n1. An app writes its row and two calls, in one transaction:\n\n   {sql}\n"
        )?;
        self.app.sql(sql).await?;
        let rolled_back = r#"INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES
            ('git', 'site:41:repo', '/repos', '{"name": "ann", "description": "site:41:repo"}'); ROLLBACK"#;
        self.app.sql(rolled_back).await?;
        writeln!(
            out,
            "   And one more in a transaction that it rolls back: site:41:repo must not be made."
        )?;
        self.until_confirmed(&["site:42:repo", "site:42:charge"])
            .await?;
        writeln!(
            out,
            "   Both were made, and what the leaves answered is in leafhopper.result."
        )?;
        let again = r#"INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES
            ('git', 'site:42:repo', '/repos', '{"name": "ada", "description": "site:42:repo"}')"#;
        self.app.sql(again).await?;
        let twice = "SELECT count(*) = 2 FROM leafhopper.call WHERE key = 'site:42:repo' AND state = 'confirmed'";
        self.app
            .until("the second call's confirmation", twice)
            .await?;
        writeln!(
            out,
            "   The same call once more: confirmed from the record, nothing is sent."
        )?;
        Ok(())
    }

    async fn trouble(&self, out: Out<'_>) -> anyhow::Result<()> {
        writeln!(
            out,
            "\n2. The leaves misbehave: git can be asked what exists, pay honours a key, host does neither."
        )?;
        let sql = r#"INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES
            ('git', 'site:43:repo', '/repos',
             '{"name": "bea", "description": "site:43:repo", "then": "lose the answer"}'),
            ('git', 'site:44:repo', '/repos',
             '{"name": "cleo", "description": "site:44:repo", "then": "lose the request"}'),
            ('git', 'site:45:repo', '/repos',
             '{"name": "dora", "description": "site:45:repo", "then": "be busy"}'),
            ('pay', 'site:43:charge', '/charges',
             '{"amount": 4200, "description": "site:43:charge", "then": "lose the answer"}'),
            ('host', 'site:43:site', '/sites',
             '{"domain": "bea.example", "description": "site:43:site", "then": "lose the answer"}')"#;
        self.app.sql(sql).await?;
        self.until_confirmed(&[
            "site:43:repo",
            "site:44:repo",
            "site:45:repo",
            "site:43:charge",
        ])
        .await?;
        let parked = "SELECT state = 'parked' FROM leafhopper.call WHERE key = 'site:43:site'";
        self.app.until("the parking", parked).await?;
        writeln!(
            out,
            "   git makes site:43:repo and loses the answer. Asked (GET /repos/bea), it shows the repository:\n   \
             that is the confirmation, adopted. Requests to make it: {}.",
            self.leaf.sent("git site:43:repo"),
        )?;
        writeln!(
            out,
            "   git loses the request for site:44:repo. Asked {} times over a second, it has no such repository,\n   \
             so it is sent again. Requests to make it: {}.",
            self.leaf.asked("/git/repos/cleo"),
            self.leaf.sent("git site:44:repo"),
        )?;
        writeln!(
            out,
            "   git is too busy for site:45:repo, and says so: sent again until it had time. Requests: {}.",
            self.leaf.sent("git site:45:repo"),
        )?;
        writeln!(
            out,
            "   pay makes site:43:charge and loses the answer. Sent the same Idempotency-Key again, it answers\n   \
             from its memory. Requests: {}, charges: {}.",
            self.leaf.sent("pay site:43:charge"),
            self.made("pay site:43:charge"),
        )?;
        writeln!(
            out,
            "   host makes site:43:site and loses the answer. Nothing can find that out: the call is parked,\n   \
             and not sent again. Requests: {}.",
            self.leaf.sent("host site:43:site"),
        )?;
        Ok(())
    }

    async fn crash(&self, sidecar: &mut Sidecar, out: Out<'_>) -> anyhow::Result<()> {
        writeln!(
            out,
            "\n3. The sidecar is killed (SIGKILL) while 40 charges and a repository are under way."
        )?;
        let sql = r#"INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES
            ('git', 'site:46:repo', '/repos',
             '{"name": "eve", "description": "site:46:repo", "then": "think"}');
            INSERT INTO leafhopper.outbox (leaf, key, path, body)
            SELECT 'pay', key, '/charges', jsonb_build_object('description', key, 'then', 'think')
              FROM (SELECT 'charge:' || i FROM generate_series(1, 40) i) charge (key)"#;
        self.app.sql(sql).await?;
        let charges = (1..=40).map(|n| format!("pay charge:{n}"));
        let effects: Vec<String> = charges.chain(["git site:46:repo".to_owned()]).collect();
        let made = || -> Vec<usize> { effects.iter().map(|effect| self.made(effect)).collect() };
        until("the execution of what is under way", async || {
            Ok(!made().contains(&0))
        })
        .await?;
        sidecar.kill().await?;
        for effect in &effects {
            self.leaf.answer(effect);
        }
        let these = "FROM leafhopper.call WHERE key LIKE 'charge:%' OR key = 'site:46:repo'";
        let left = self
            .app
            .value(&format!(
                "SELECT count(*) FILTER (WHERE state <> 'confirmed') {these}"
            ))
            .await?;
        sidecar.start()?;
        let confirmed = format!("SELECT bool_and(state = 'confirmed') {these}");
        self.app
            .until("the confirmation of what was under way", &confirmed)
            .await?;
        let twice = made().into_iter().filter(|times| *times > 1).count();
        writeln!(
            out,
            "   All 41 were executed, and nobody wrote down {left} of the answers. The next instance waits until\n   \
             nothing of them can still be on its way. Then it asks git, and finds the repository; to pay it\n   \
             sends the same keys again. All 41 exist, {twice} of them twice.",
        )?;
        Ok(())
    }

    async fn person(&self, sidecar: &Sidecar, out: Out<'_>) -> anyhow::Result<()> {
        let id = "SELECT id FROM leafhopper.call WHERE key = 'site:43:site'";
        let id = self.app.value(id).await?;
        let reason = "it is in host's console";
        writeln!(
            out,
            "\n5. A person looked at host: the site of the parked call is there. They say so:\n\n   \
             leafhopper resolve {id} --confirmed --status 201 --reason \"{reason}\""
        )?;
        let words = [
            "resolve",
            &id,
            "--confirmed",
            "--status",
            "201",
            "--reason",
            reason,
        ];
        sidecar.command(&words).await?;
        self.until_confirmed(&["site:43:site"]).await
    }

    /// The leaves' own ledger against the database.
    async fn reckoning(&self, out: Out<'_>) -> anyhow::Result<bool> {
        let rows = "SELECT c.id, c.leaf || ' ' || c.key, c.state, coalesce(c.reason, ''), c.attempts,
                           CASE WHEN r.call_id <> c.id THEN 'as call ' || r.call_id ELSE coalesce(r.source, '') END
                      FROM leafhopper.call c
                      LEFT JOIN leafhopper.result r ON r.leaf = c.leaf AND r.key = c.key
                     WHERE c.key NOT LIKE 'charge:%' AND c.batch_id IS NULL ORDER BY c.id";
        let rows = self.app.sql(rows).await?;
        let effects = self.leaf.effects();
        writeln!(
            out,
            "\n   {:>3}  {:<20} {:<10} {:<16} {:>8} {:>8}  source",
            "id", "call", "state", "reason", "attempts", "effects"
        )?;
        for row in &rows {
            if let [id, call, state, reason, attempts, source] = row.as_slice() {
                let line = format!(
                    "   {id:>3}  {call:<20} {state:<10} {reason:<16} {attempts:>8} {:>8}  {source}",
                    self.made(call)
                );
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        let standing = "SELECT r.leaf || ' ' || r.key
                          FROM leafhopper.result r JOIN leafhopper.call c ON c.id = r.call_id
                         WHERE r.undone_at IS NULL AND c.method <> 'DELETE'";
        let standing = self.app.sql(standing).await?;
        let doubled = effects.values().filter(|times| **times > 1).count();
        let lost = standing
            .iter()
            .flatten()
            .filter(|call| !effects.contains_key(*call))
            .count();
        let unknown = effects.len() - (standing.len() - lost);
        writeln!(
            out,
            "\n   The leaves hold {} effects, the database {} results that stand: {doubled} doubled, {lost} missing, \
             {unknown} unknown.",
            effects.len(),
            standing.len(),
        )?;
        let rolled_back = self.leaf.sent("git site:41:repo");
        let agree = doubled == 0 && lost == 0 && unknown == 0 && rolled_back == 0;
        if !agree {
            writeln!(out, "   They do NOT agree.")?;
        }
        // What is written to a pipe should be seen before the server stops.
        out.flush()?;
        Ok(agree)
    }

    /// For who wants to look around.
    pub(super) async fn what_next(
        &self,
        sidecar: &Sidecar,
        url: &str,
        out: Out<'_>,
    ) -> anyhow::Result<()> {
        let adopted = "SELECT id FROM leafhopper.call WHERE key = 'site:43:repo'";
        let adopted = self.app.value(adopted).await?;
        writeln!(
            out,
            "\nStill running, until Ctrl-C.\n\
             \x20 the page       http://{address}/ (what is stuck, and why; also /metrics, /livez, /readyz)\n\
             \x20 the leaves     {leaves} (/git/repos/ada, /pay/charges/1)\n\
             \x20 the database   {url}\n\
             In another terminal, write a call of your own, and look around:\n\
             \x20 export LEAFHOPPER_CONFIG='{config}'\n\
             \x20 export DATABASE_URL='{url}'\n\
             \x20 {psql} \"$DATABASE_URL\" -c \"INSERT INTO leafhopper.outbox (leaf, key, path, body) VALUES\n\
             \x20   ('git', 'mine', '/repos', \
             '{{\\\"name\\\": \\\"mine\\\", \\\"description\\\": \\\"mine\\\", \\\"then\\\": \\\"lose the answer\\\"}}')\"\n\
             \x20 {psql} \"$DATABASE_URL\" -c \"SELECT id, state, reason, attempts FROM leafhopper.call \
             WHERE key = 'mine'\"\n\
             \x20 {program} calls\n\
             \x20 {program} show {adopted}\n",
            address = sidecar.address(),
            leaves = self.leaf.url(),
            psql = self.app.psql().display(),
            config = sidecar.config().display(),
            program = sidecar.program().display(),
        )?;
        out.flush()?;
        Ok(())
    }

    /// How often this effect exists.
    pub(super) fn made(&self, effect: &str) -> usize {
        self.leaf.effects().get(effect).copied().unwrap_or_default()
    }

    pub(super) async fn until_confirmed(&self, keys: &[&str]) -> anyhow::Result<()> {
        let list = keys
            .iter()
            .map(|key| format!("'{key}'"))
            .collect::<Vec<_>>()
            .join(", ");
        let query = format!(
            "SELECT bool_and(state = 'confirmed') FROM leafhopper.call WHERE key IN ({list})"
        );
        let what = format!("the confirmation of {}", keys.join(", "));
        self.app.until(&what, &query).await
    }
}
