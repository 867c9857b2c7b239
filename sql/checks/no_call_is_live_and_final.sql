-- A call is at work or has ended, and it ends once: in `finished`, or with a result of its own. Only one that
-- is under way, or whose instance vanished with it, may have its result already: the app's word.
-- Caller:      leafhopper check, and every test at its end
-- Index:       none: reads all live and finished calls
-- Locks:       none
-- Repeatable:  yes
SELECT d.call_id, d.state AS live, f.state AS final
  FROM leafhopper.dispatch d JOIN leafhopper.finished f USING (call_id)
 UNION ALL
SELECT f.call_id, 'confirmed', f.state
  FROM leafhopper.finished f JOIN leafhopper.result r USING (call_id)
 UNION ALL
SELECT d.call_id, d.state, 'confirmed'
  FROM leafhopper.dispatch d JOIN leafhopper.result r USING (call_id)
 WHERE d.state NOT IN ('dispatching', 'in_doubt')
 UNION ALL
SELECT r.call_id, 'confirmed', 'confirmed'
  FROM leafhopper.result r
 GROUP BY r.call_id HAVING count(*) > 1 AND r.call_id IS NOT NULL
