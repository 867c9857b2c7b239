-- Cancel the waiting calls of batches that a failure or a person has cancelled.
-- Caller:      store/sweep.rs, from engine/batcher.rs; for every leaf, known or not, paused or not
-- Index:       finished_fails_batch or batch_live, dispatch_batch
-- Locks:       the cancelled rows, and adds what a cancelled head holds; skips rows that another transaction holds
-- What was pending when the database lost commits may have been executed: it is asked about first.
-- Repeatable:  yes
-- $1 int4 at most so many calls
WITH cancelled AS MATERIALIZED (
    SELECT b.id FROM leafhopper.batch b WHERE b.state = 'cancelling'
     UNION
    -- Also where somebody holds the batch's row, so that it can't say so yet.
    SELECT f.batch_id FROM leafhopper.finished f WHERE f.fails_batch
),
over AS MATERIALIZED (
    SELECT d.call_id, d.batch_id, d.leaf, d.ordering_key, d.held, d.attempts, d.last_status, d.last_error, d.suspect
      FROM cancelled c JOIN leafhopper.dispatch d ON d.batch_id = c.id
     WHERE d.state = 'pending' AND d.run_when IN ('ready', 'batch_succeeded')
       AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
       AND (NOT d.suspect OR d.held = 'batch' OR leafhopper.can_be_asked_first(d.call_id))
     ORDER BY d.call_id LIMIT $1
       FOR UPDATE OF d SKIP LOCKED
),
asked AS (
    UPDATE leafhopper.dispatch d
       SET state = 'in_doubt', held = NULL, suspect = false, in_doubt_since = clock_timestamp(), alive_until = clock_timestamp(),
           due_at = clock_timestamp(), first_claimed_at = coalesce(d.first_claimed_at, clock_timestamp())
      FROM over o WHERE d.call_id = o.call_id AND o.suspect AND o.held IS DISTINCT FROM 'batch'
),
waiting AS MATERIALIZED (
    SELECT o.* FROM over o WHERE NOT o.suspect OR o.held = 'batch'
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
