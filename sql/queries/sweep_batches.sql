-- Cancel the waiting calls of batches that are not open any more: what a failure or a person has cancelled, what came
-- after the end, and follow-ups of a phase that does not come.
-- Caller:      store/batch.rs, from engine/batcher.rs; for every leaf, known or not, paused or not
-- Index:       finished_fails_batch, batch_live, batch_pkey, dispatch_batch
-- Locks:       the cancelled rows, and adds what a cancelled head holds; skips rows that another transaction holds
-- What was pending when the database lost commits may have been executed: it is asked about first.
-- Repeatable:  yes
-- Gives how many calls of each leaf.
-- $1 int4 at most so many calls   $2 uuid[] batches that may have such calls, beside those that are being cancelled
WITH closed AS MATERIALIZED (
    SELECT b.id, b.state, b.last_phase_at IS NOT NULL AS in_last_phase, b.finished_at IS NOT NULL AS finished
      FROM leafhopper.batch b
     WHERE b.state = 'cancelling'
        OR b.id = ANY ($2::uuid[]) AND b.state IN ('compensating', 'succeeded', 'cancelled', 'finished')
     UNION
    -- Also where somebody holds the batch's row, so that it can't say so yet.
    SELECT f.batch_id, 'cancelling', false, false FROM leafhopper.finished f
     WHERE f.fails_batch
       -- A call that was added and cancelled in one transaction can have come after the batch's end.
       AND NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = f.batch_id AND b.state NOT IN ('open', 'closing'))
),
over AS MATERIALIZED (
    SELECT d.call_id, d.batch_id, d.leaf, d.ordering_key, d.held, d.attempts, d.last_status, d.last_error, d.suspect,
           CASE WHEN c.state IN ('cancelling', 'compensating') THEN 'batch_cancelled' ELSE 'batch_finished' END AS reason
      FROM closed c JOIN leafhopper.dispatch d ON d.batch_id = c.id
     WHERE d.state = 'pending' AND d.undoes IS NULL
       AND (d.run_when = 'ready'
            OR d.run_when = 'batch_succeeded' AND c.state <> 'succeeded'
            OR d.run_when = 'batch_failed' AND c.state IN ('succeeded', 'finished')
            -- A follow-up that came after its phase.
            OR d.held = 'batch' AND (c.finished OR c.in_last_phase AND d.run_when <> 'batch_settled'
                                                   AND c.state NOT IN ('cancelling', 'compensating')))
       AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
       AND (NOT d.suspect OR d.held = 'batch' OR leafhopper.can_be_asked_first(d.call_id))
     LIMIT $1
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
),
ended AS (
    INSERT INTO leafhopper.finished (call_id, batch_id, state, reason, attempts, last_status, last_error)
    SELECT w.call_id, w.batch_id, 'cancelled', w.reason, w.attempts, w.last_status, w.last_error FROM waiting w
    RETURNING call_id
)
SELECT w.leaf, count(*) AS calls FROM waiting w GROUP BY w.leaf
