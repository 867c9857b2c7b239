-- A compensation's word and the end of its effect are one; nothing of a batch that succeeded is undone by one; and what a
-- finished teardown could undo is undone, or somebody let it stand.
-- Caller:      leafhopper check, and every test at its end
-- Index:       result_pkey, outbox_pkey, outbox_compensation; reads all compensations and all batches
-- Locks:       none
-- Repeatable:  yes
WITH compensation AS (
    SELECT c.id, c.leaf, c.batch_id, c.undoes, regexp_replace(c.key, ':undo:[0-9]+$', '') AS key,
           substring(c.key FROM ':undo:([0-9]+)$')::integer AS generation,
           EXISTS (SELECT FROM leafhopper.result r WHERE r.leaf = c.leaf AND r.key = c.key) AS confirmed
      FROM leafhopper.outbox c WHERE c.undoes IS NOT NULL
)
SELECT c.batch_id, c.id AS call_id, 'its word is there, and its effect stands' AS wrong
  FROM compensation c JOIN leafhopper.result r USING (leaf, key, generation)
 WHERE c.confirmed AND r.undone_at IS NULL
 UNION ALL
SELECT c.batch_id, c.id, 'it waits to undo what is undone'
  FROM compensation c
  JOIN leafhopper.result r USING (leaf, key, generation)
  JOIN leafhopper.dispatch d ON d.call_id = c.id
 WHERE r.undone_at IS NOT NULL AND d.state IN ('pending', 'parked')
 UNION ALL
SELECT c.batch_id, c.id, 'it undoes what is not its batch''s, or not a failed one''s'
  FROM compensation c
  LEFT JOIN leafhopper.batch b ON b.id = c.batch_id
  LEFT JOIN leafhopper.result r USING (leaf, key, generation)
 WHERE b.state IS DISTINCT FROM 'compensating' AND b.state IS DISTINCT FROM 'cancelled'
    OR r.call_id IS DISTINCT FROM c.undoes
 UNION ALL
SELECT b.id, r.call_id, 'its teardown is over, and an effect with a compensation stands'
  FROM leafhopper.batch b
  JOIN leafhopper.result r ON r.batch_id = b.id AND r.undone_at IS NULL
  JOIN leafhopper.outbox o ON o.id = r.call_id AND o.run_when = 'ready' AND o.compensate IS NOT NULL
 WHERE b.state = 'cancelled'
   AND NOT EXISTS (SELECT FROM leafhopper.batch_mark m WHERE m.batch_id = b.id)
   AND NOT EXISTS (SELECT FROM compensation c JOIN leafhopper.finished f ON f.call_id = c.id
                    WHERE c.leaf = r.leaf AND c.key = r.key AND c.generation = r.generation AND f.reason = 'waived')
 UNION ALL
SELECT r.batch_id, r.call_id, 'its result names another batch'
  FROM leafhopper.result r JOIN leafhopper.outbox o ON o.id = r.call_id
 WHERE r.batch_id IS DISTINCT FROM o.batch_id
