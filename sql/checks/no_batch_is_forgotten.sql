-- Whatever a batch waits for, something will make somebody look at it: a call of it that lives, its place among those on
-- their way to their end, or a mark.
-- Caller:      leafhopper check, and every test at its end
-- Index:       outbox_batch, dispatch_batch, batch_pkey; reads all results and finished calls of batches
-- Locks:       none
-- Repeatable:  yes
WITH ended AS (
    -- Results outlive batches that are pruned.
    SELECT r.batch_id AS id FROM leafhopper.result r
     WHERE r.batch_id IS NOT NULL AND EXISTS (SELECT FROM leafhopper.outbox o WHERE o.batch_id = r.batch_id)
     UNION
    SELECT f.batch_id FROM leafhopper.finished f WHERE f.batch_id IS NOT NULL
)
SELECT e.id, 'all its calls have ended, and it is open' AS wrong
  FROM ended e LEFT JOIN leafhopper.batch b ON b.id = e.id
 WHERE coalesce(b.state, 'open') = 'open' AND coalesce(b.sealed, true)
   AND NOT EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.batch_id = e.id AND d.run_when = 'ready')
   AND NOT EXISTS (SELECT FROM leafhopper.batch_mark m WHERE m.batch_id = e.id)
 UNION ALL
SELECT b.id, 'it is finished, and a call of it lives'
  FROM leafhopper.batch b
 WHERE b.finished_at IS NOT NULL
   AND EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.batch_id = b.id)
   AND NOT EXISTS (SELECT FROM leafhopper.batch_mark m WHERE m.batch_id = b.id)
 UNION ALL
SELECT f.batch_id, 'a call has failed it, and nobody was told'
  FROM leafhopper.finished f
 WHERE f.fails_batch AND NOT EXISTS (SELECT FROM leafhopper.batch_mark m WHERE m.batch_id = f.batch_id)
