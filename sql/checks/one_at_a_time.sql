-- Of an effect at most one call is under way, in doubt or parked; of an ordering key at most one is the head.
-- Caller:      leafhopper check, and every test at its end
-- Index:       none: reads all live calls, lest an index that lies hides what it should have prevented
-- Locks:       none
-- Repeatable:  yes
SELECT d.leaf, d.key, 'key' AS kind, array_agg(d.call_id ORDER BY d.call_id) AS calls
  FROM leafhopper.dispatch d
 WHERE d.state IN ('dispatching', 'in_doubt', 'parked')
 GROUP BY d.leaf, d.key HAVING count(*) > 1
 UNION ALL
SELECT d.leaf, d.ordering_key, 'ordering_key', array_agg(d.call_id ORDER BY d.call_id)
  FROM leafhopper.dispatch d
 WHERE d.ordering_key IS NOT NULL AND (d.held IS NULL OR d.held = 'key')
 GROUP BY d.leaf, d.ordering_key HAVING count(*) > 1
