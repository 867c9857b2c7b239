-- Live instances, paused leaves, and batches by state and by what they are stuck in, for the gauges.
-- Caller:      store/stats.rs, at each scrape
-- Index:       batch_live, batch_pkey, dispatch_batch: what is live only; of a batch that is torn down, its own rows
-- Locks:       none
-- Repeatable:  yes
SELECT 'instance' AS kind, NULL::text AS name, count(*) AS number
  FROM leafhopper.instance i WHERE i.heartbeat_at + i.lease > now()
 UNION ALL
SELECT 'paused', c.leaf, 1 FROM leafhopper.leaf_control c WHERE c.paused
 UNION ALL
SELECT 'batch', l.state, count(*)
  FROM (SELECT b.state FROM leafhopper.batch b WHERE b.state IN ('open', 'closing', 'cancelling', 'compensating')
         UNION ALL
        -- One without a row.
        SELECT 'open' FROM (SELECT DISTINCT d.batch_id AS id FROM leafhopper.dispatch d WHERE d.batch_id IS NOT NULL) u
         WHERE NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = u.id)) l
 GROUP BY l.state
 UNION ALL
SELECT 'stuck_batch', coalesce(CASE WHEN b.state <> 'cancelling' THEN leafhopper.batch_reason(b) END, b.state), count(*)
  FROM leafhopper.batch b
 WHERE b.state IN ('open', 'cancelling', 'compensating')
   AND leafhopper.batch_waits_since(b)
       < now() - (SELECT value::interval FROM leafhopper.setting WHERE name = 'stuck_after')
 GROUP BY 2
