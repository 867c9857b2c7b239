//! The story's batch: one of its calls is refused while another is in flight. Then what was made is undone.

use super::{
    app::until,
    story::{Out, Story},
};

/// Refused, and undone.
const FIRST: &str = "00000000-0000-4000-8000-000000000048";
/// The same keys again.
const SECOND: &str = "00000000-0000-4000-8000-000000000148";

/// The domain goes after the site that it is for.
const CALLS: &str = r#"INSERT INTO leafhopper.batch (id, name) VALUES ('{batch}', 'Gil''s shop');
INSERT INTO leafhopper.outbox (batch_id, leaf, key, method, path, body, ordering_key, run_when) VALUES
  ('{batch}', 'git', 'site:48:repo', 'POST', '/repos',
   '{"name": "gil", "description": "site:48:repo"}', NULL, 'ready'),
  ('{batch}', 'pay', 'site:48:charge', 'POST', '/charges',
   '{"amount": 4200, "description": "site:48:charge"}', NULL, 'ready'),
  ('{batch}', 'host', 'site:48:site', 'POST', '/sites',
   '{"plan": "small", "description": "site:48:site"}', 'site:48', 'ready'),
  ('{batch}', 'host', 'site:48:domain', 'POST', '/domains',
   '{"domain": "gil.example", "description": "site:48:domain"}', 'site:48', 'ready'),
  ('{batch}', 'dns', 'site:48:dns', 'PUT', '/records/gil.example',
   '{"address": "{address}", "description": "site:48:dns"}', NULL, 'ready'),
  ('{batch}', 'mail', 'site:48:sorry', 'POST', '/messages',
   '{"to": "gil@example.com", "text": "Not yet, Gil.", "description": "site:48:sorry"}', NULL, 'batch_failed')"#;

impl Story {
    pub(super) async fn batch(&self, out: Out<'_>) -> anyhow::Result<()> {
        writeln!(
            out,
            "\n4. What Gil ordered stands or falls together: a repository, a charge, a site and then its domain,\n   \
             and a DNS record. They are a batch, inserted in one transaction, with a mail for when it fails."
        )?;
        self.refused(out).await?;
        self.undone(out).await?;
        self.again(out).await
    }

    /// To the moment in which the batch has failed, and a call of it is still in flight.
    async fn refused(&self, out: Out<'_>) -> anyhow::Result<()> {
        // So that the story has one order of events.
        let slow = ["pay site:48:charge", "host site:48:site", "dns site:48:dns"];
        for effect in slow {
            self.leaf.think_about(effect);
        }
        self.insert(FIRST, "203.0.113.300").await?;
        self.until_confirmed(&["site:48:repo"]).await?;
        self.leaf.answer("pay site:48:charge");
        self.until_confirmed(&["site:48:charge"]).await?;
        until("the site of the batch", async || {
            Ok(self.made("host site:48:site") > 0)
        })
        .await?;
        self.leaf.answer("dns site:48:dns");
        let failing = format!(
            "SELECT (SELECT state = 'cancelling' FROM leafhopper.batch WHERE id = '{FIRST}')
                AND (SELECT state = 'cancelled' FROM leafhopper.call WHERE key = 'site:48:domain')"
        );
        self.app.until("the batch's failure", &failing).await?;
        let status = "SELECT last_status FROM leafhopper.call WHERE key = 'site:48:dns'";
        writeln!(
            out,
            "   The record's address is wrong: dns says {}, while host is still at work on the site. Of this batch\n   \
             nothing more is sent, and nothing is undone yet: it waits for what is in flight.\n",
            self.app.value(status).await?,
        )?;
        self.show(FIRST, out).await?;
        writeln!(
            out,
            "\n   DELETEs that the leaves have seen: {}.",
            self.leaf.deleted().len()
        )?;
        Ok(())
    }

    /// From there to its end.
    async fn undone(&self, out: Out<'_>) -> anyhow::Result<()> {
        self.leaf.answer("host site:48:site");
        self.until_finished(FIRST, "cancelled").await?;
        writeln!(
            out,
            "\n   Now host answers that the site is made. It is undone, then what was made before it, the newest\n   \
             first, each by a call of its own. The mail goes out after that.\n"
        )?;
        self.show(FIRST, out).await?;
        let standing = format!(
            "SELECT count(*) FROM leafhopper.call WHERE batch_id = '{FIRST}' AND run_when = 'ready'
                AND state = 'confirmed' AND undone_at IS NULL"
        );
        let left = [
            "host site:48:site",
            "pay site:48:charge",
            "git site:48:repo",
        ];
        let [sites, charges, repositories] = left.map(|effect| self.made(effect));
        writeln!(
            out,
            "\n   DELETEs that the leaves have seen: {}.\n   \
             Of the batch's effects {} stand. In the leaves' ledger: {sites} sites, {charges} charges, \
             {repositories} repositories of it.",
            self.leaf.deleted().join(", "),
            self.app.value(&standing).await?,
        )?;
        Ok(())
    }

    /// Once more, as the app would after a correction.
    async fn again(&self, out: Out<'_>) -> anyhow::Result<()> {
        self.insert(SECOND, "203.0.113.30").await?;
        self.until_finished(SECOND, "succeeded").await?;
        writeln!(
            out,
            "\n   The app corrects the address, and inserts the same keys as another batch. That has succeeded.\n   \
             What was undone is there again, as the key's next generation:\n"
        )?;
        let results = "SELECT r.leaf || ' ' || r.key, string_agg(r.generation || CASE WHEN r.undone_at IS NULL
                              THEN ' stands' ELSE ' undone' END, ', ' ORDER BY r.generation)
                         FROM leafhopper.result r JOIN leafhopper.call c ON c.id = r.call_id
                        WHERE c.batch_id IS NOT NULL AND c.method <> 'DELETE'
                        GROUP BY r.leaf, r.key ORDER BY min(r.seq)";
        for row in self.app.sql(results).await? {
            if let [call, generations] = row.as_slice() {
                writeln!(out, "   {call:<20} {generations}")?;
            }
        }
        let keys = self.leaf.keys("pay site:48:charge");
        writeln!(
            out,
            "\n   To pay, which remembers the charge that was undone, the next one goes with another\n   \
             Idempotency-Key: {}.",
            keys.join(", then ")
        )?;
        Ok(())
    }

    async fn insert(&self, batch: &str, address: &str) -> anyhow::Result<()> {
        let sql = CALLS
            .replace("{batch}", batch)
            .replace("{address}", address);
        self.app.sql(&sql).await?;
        Ok(())
    }

    /// With its follow-ups.
    async fn until_finished(&self, batch: &str, state: &str) -> anyhow::Result<()> {
        let finished = format!(
            "SELECT state = '{state}' AND finished_at IS NOT NULL FROM leafhopper.batch WHERE id = '{batch}'"
        );
        let what = format!("the end of batch {batch} as {state}");
        self.app.until(&what, &finished).await
    }

    /// Its rows, as they are now.
    async fn show(&self, batch: &str, out: Out<'_>) -> anyhow::Result<()> {
        let state =
            format!("SELECT name || ': ' || state FROM leafhopper.batch WHERE id = '{batch}'");
        writeln!(out, "   Batch {}", self.app.value(&state).await?)?;
        let rows = format!(
            "SELECT id, leaf || ' ' || key, method || ' ' || path, run_when,
                    concat_ws(', ', state, reason, CASE WHEN undone_at IS NOT NULL THEN 'undone' END)
               FROM leafhopper.call WHERE batch_id = '{batch}' ORDER BY id"
        );
        for row in self.app.sql(&rows).await? {
            if let [id, call, request, run_when, state] = row.as_slice() {
                writeln!(
                    out,
                    "   {id:>3}  {call:<25} {request:<25} {run_when:<12} {state}"
                )?;
            }
        }
        Ok(())
    }
}
