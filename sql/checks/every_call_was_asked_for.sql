-- What is at work or has ended is a row of the outbox, under its leaf and key.
-- Caller:      leafhopper check, and every test at its end
-- Index:       outbox_pkey; reads all live and finished calls
-- Locks:       none
-- Repeatable:  yes
SELECT d.call_id, 'dispatch' AS found_in
  FROM leafhopper.dispatch d
 WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o
                    WHERE o.id = d.call_id AND o.leaf = d.leaf
                      AND d.key = CASE WHEN o.undoes IS NULL THEN o.key
                                       ELSE regexp_replace(o.key, ':undo:[0-9]+$', '') END)
 UNION ALL
SELECT f.call_id, 'finished' FROM leafhopper.finished f
 WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.id = f.call_id)
 UNION ALL
-- What came late can be about a call that was pruned.
SELECT a.call_id, 'attempt' FROM leafhopper.attempt a
 WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.id = a.call_id)
   AND NOT EXISTS (SELECT FROM leafhopper.setting s WHERE s.name = 'calls_pruned_to' AND s.value::int8 >= a.call_id)
 UNION ALL
-- A result may outlive its call, but never stand under another key than the call's.
SELECT o.id, 'result' FROM leafhopper.result r JOIN leafhopper.outbox o ON o.id = r.call_id
 WHERE (r.leaf, r.key) <> (o.leaf, o.key)
