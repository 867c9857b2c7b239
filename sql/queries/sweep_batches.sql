-- Cancel the waiting calls of batches that a failure or a person has cancelled.
-- Caller:      store/sweep.rs, from engine/batcher.rs; for every leaf, known or not, paused or not
-- Index:       finished_fails_batch or batch_live, dispatch_batch
-- Locks:       the cancelled rows, and adds what a cancelled head holds; skips rows that another transaction holds
-- Repeatable:  yes
-- $1 int4 at most so many calls
WITH cancelled AS MATERIALIZED (
    SELECT b.id FROM leafhopper.batch b WHERE b.state = 'cancelling'
     UNION
    -- Also where somebody holds the batch's row, so that it can't say so yet.
    SELECT f.batch_id FROM leafhopper.finished f WHERE f.fails_batch
),
waiting AS MATERIALIZED (
    SELECT d.call_id, d.batch_id, d.leaf, d.ordering_key, d.held, d.attempts, d.last_status, d.last_error
      FROM cancelled c JOIN leafhopper.dispatch d ON d.batch_id = c.id
     WHERE d.state = 'pending' AND d.run_when IN ('ready', 'batch_succeeded')
     ORDER BY d.call_id LIMIT $1
       FOR UPDATE OF d SKIP LOCKED
),
gone AS (
    DELETE FROM leafhopper.dispatch d USING waiting w WHERE d.call_id = w.call_id
),
held_order AS (
    INSERT INTO leafhopper.order_hold (leaf, ordering_key, head)
    SELECT w.leaf, w.ordering_key, w.call_id
      FROM waiting w JOIN leafhopper.leaf_control c ON c.leaf = w.leaf AND c.hold_after_failed_head
     WHERE w.ordering_key IS NOT NULL AND (w.held IS NULL OR w.held = 'key')
    ON CONFLICT DO NOTHING
)
INSERT INTO leafhopper.finished (call_id, batch_id, state, reason, attempts, last_status, last_error)
SELECT w.call_id, w.batch_id, 'cancelled', 'batch_cancelled', w.attempts, w.last_status, w.last_error FROM waiting w
RETURNING call_id, (SELECT w.leaf FROM waiting w WHERE w.call_id = finished.call_id) AS leaf
