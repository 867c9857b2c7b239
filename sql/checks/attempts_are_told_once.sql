-- The history tells each attempt once. Told apart: probes, a second confirmation, and the note that an instance
-- vanished, which its late answer may follow.
-- Caller:      leafhopper check, and every test at its end
-- Index:       none: reads all attempts
-- Locks:       none
-- Repeatable:  yes
SELECT a.call_id, a.attempt, array_agg(a.class ORDER BY a.id) AS classes
  FROM leafhopper.attempt a
 WHERE a.class NOT IN ('confirmed_again', 'probe_absent', 'probe_unclear')
   AND a.error IS DISTINCT FROM 'the instance vanished while the request may have been under way'
 GROUP BY a.call_id, a.attempt HAVING count(*) > 1
 UNION ALL
-- More than the latest claim's number can't have been made.
SELECT a.call_id, a.attempt, array_agg(a.class ORDER BY a.id)
  FROM leafhopper.attempt a JOIN leafhopper.dispatch d USING (call_id)
 WHERE a.attempt > d.tries
 GROUP BY a.call_id, a.attempt
