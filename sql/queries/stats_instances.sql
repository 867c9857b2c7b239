-- Live instances, paused leaves and batches by state, for the gauges.
-- Caller:      store/stats.rs, at each scrape
-- Index:       batch_live
-- Locks:       none
-- Repeatable:  yes
SELECT 'instance' AS kind, NULL::text AS name, count(*) AS number
  FROM leafhopper.instance i WHERE i.heartbeat_at + i.lease > now()
 UNION ALL
SELECT 'paused', c.leaf, 1 FROM leafhopper.leaf_control c WHERE c.paused
 UNION ALL
SELECT 'batch', b.state, count(*) FROM leafhopper.batch b
 WHERE b.state IN ('open', 'closing', 'cancelling', 'compensating') GROUP BY b.state
