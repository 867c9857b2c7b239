-- Write the state of batches that a failed, expired or cancelled call has cancelled.
-- The announcement itself is that call's row in finished, which the claim looks for; here it moves into the
-- batch's row. So nothing that fails a call ever waits for an app, or another instance, that holds the batch.
-- Caller:      store/sweep.rs, from engine/batcher.rs
-- Index:       finished_fails_batch, batch_pkey
-- Locks:       the batches' rows, by id; skips rows that another transaction holds, but waits for one whose
--              insert another transaction has not committed
-- Repeatable:  yes
-- $1 uuid[] batches
WITH failed AS MATERIALIZED (
    SELECT DISTINCT u.id FROM unnest($1::uuid[]) AS u (id) ORDER BY u.id
),
known AS MATERIALIZED (
    SELECT b.id FROM leafhopper.batch b WHERE b.id IN (SELECT f.id FROM failed f)
     ORDER BY b.id FOR UPDATE SKIP LOCKED
),
moved AS (
    UPDATE leafhopper.batch b SET state = 'cancelling' FROM known k
     WHERE b.id = k.id AND b.state IN ('open', 'closing')
),
added AS (
    INSERT INTO leafhopper.batch (id, state)
    SELECT f.id, 'cancelling' FROM failed f
     WHERE NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = f.id)
    ON CONFLICT DO NOTHING
    RETURNING id
)
UPDATE leafhopper.finished f SET fails_batch = false
 WHERE f.fails_batch
   AND (f.batch_id IN (SELECT k.id FROM known k) OR f.batch_id IN (SELECT a.id FROM added a))
RETURNING f.batch_id
