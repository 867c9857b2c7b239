-- End waiting calls whose deadline has passed (expired) or that were tried for too long (failed, gave_up).
-- Caller:      store/sweep.rs, from engine/expirer.rs; for every leaf, known or not, paused or not
-- Index:       dispatch_ends, batch_pkey, outbox_pkey
-- Locks:       the ended rows; skips rows that another transaction holds
-- What was pending when the database lost commits may have been executed: it is asked about first.
-- Repeatable:  yes
-- $1 int4 at most so many
WITH over AS MATERIALIZED (
    SELECT d.* FROM leafhopper.dispatch d
     WHERE d.state = 'pending' AND (d.deadline IS NOT NULL OR d.give_up_at IS NOT NULL)
       AND least(d.deadline, d.give_up_at) <= statement_timestamp()
       AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
       -- A batch that is closing may be about to succeed: what ends here would come too late to cancel it.
       AND NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state = 'closing')
       AND (NOT d.suspect OR d.held = 'batch' OR leafhopper.can_be_asked_first(d.call_id))
     ORDER BY least(d.deadline, d.give_up_at)
     LIMIT $1
       FOR UPDATE SKIP LOCKED
),
asked AS (
    UPDATE leafhopper.dispatch d
       SET state = 'in_doubt', held = NULL, suspect = false, in_doubt_since = clock_timestamp(), alive_until = clock_timestamp(),
           due_at = clock_timestamp(), first_claimed_at = coalesce(d.first_claimed_at, clock_timestamp())
      FROM over o WHERE d.call_id = o.call_id AND o.suspect AND o.held IS DISTINCT FROM 'batch'
),
due AS MATERIALIZED (
    SELECT o.* FROM over o WHERE NOT o.suspect OR o.held = 'batch'
),
gone AS (
    DELETE FROM leafhopper.dispatch d USING due e WHERE d.call_id = e.call_id
),
ended AS (
    INSERT INTO leafhopper.finished (call_id, batch_id, state, reason, attempts, last_status, last_error, fails_batch)
    SELECT e.call_id, e.batch_id,
           CASE WHEN e.deadline <= clock_timestamp() THEN 'expired' ELSE 'failed' END,
           CASE WHEN e.deadline <= clock_timestamp() THEN NULL ELSE 'gave_up' END,
           e.attempts, e.last_status, e.last_error, leafhopper.failure_cancels(e.batch_id, e.run_when)
      FROM due e
    RETURNING call_id, state, reason
),
held_order AS (
    INSERT INTO leafhopper.order_hold (leaf, ordering_key, head)
    SELECT e.leaf, e.ordering_key, e.call_id
      FROM due e JOIN leafhopper.leaf_control c ON c.leaf = e.leaf AND c.hold_after_failed_head
     WHERE e.ordering_key IS NOT NULL AND (e.held IS NULL OR e.held = 'key')
    ON CONFLICT DO NOTHING
)
SELECT e.call_id, e.leaf, n.state, n.reason, e.ordering_key, e.batch_id, e.undoes IS NOT NULL AS compensates,
       o.meta ->> 'traceparent' AS traceparent, o.meta ->> 'tracestate' AS tracestate
  FROM due e JOIN ended n USING (call_id) JOIN leafhopper.outbox o ON o.id = e.call_id
