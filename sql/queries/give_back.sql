-- Give back this instance's claims that it does not hold: the commit's reply was lost, so nothing was sent.
-- What is to be cancelled is, then: nothing of it was executed.
-- Caller:      store/claim.rs, from engine/reclaimer.rs (again and again: a lost statement may commit late)
--              and from engine/dispatcher.rs for what a stop left unsent
-- Index:       dispatch_one_at_a_time (its predicate covers the state)
-- Locks:       the given-back rows; skips what another transaction holds
-- Repeatable:  yes
-- $1 uuid instance   $2 int8 the last round that was begun before the held calls were listed
-- $3 int8[] rounds still being claimed   $4 int8[] held calls
WITH mine AS MATERIALIZED (
    SELECT d.*, d.cancel_requested IS NOT NULL AND d.in_doubt_since IS NULL AS over
      FROM leafhopper.dispatch d
     WHERE d.state = 'dispatching' AND d.instance = $1 AND d.round <= $2
       AND d.round <> ALL ($3::int8[]) AND d.call_id <> ALL ($4::int8[])
     ORDER BY d.call_id
       FOR UPDATE OF d SKIP LOCKED
),
given AS (
    UPDATE leafhopper.dispatch d
       SET state = CASE WHEN d.in_doubt_since IS NULL THEN 'pending' ELSE 'in_doubt' END,
           resend = false,
           due_at = CASE WHEN d.in_doubt_since IS NULL THEN d.due_at ELSE clock_timestamp() END,
           tries = d.tries - 1,
           first_claimed_at = CASE WHEN d.tries = 1 THEN NULL ELSE d.first_claimed_at END,
           give_up_at = CASE WHEN d.tries = 1 THEN NULL ELSE d.give_up_at END
      FROM mine m WHERE d.call_id = m.call_id AND NOT m.over
),
gone AS (
    DELETE FROM leafhopper.dispatch d USING mine m WHERE d.call_id = m.call_id AND m.over
),
ended AS (
    INSERT INTO leafhopper.finished (call_id, batch_id, state, reason, attempts, last_status, last_error, fails_batch)
    SELECT m.call_id, m.batch_id, 'cancelled', m.cancel_requested, m.attempts, m.last_status, m.last_error,
           leafhopper.failure_cancels(m.batch_id, m.run_when)
      FROM mine m WHERE m.over
),
held_order AS (
    INSERT INTO leafhopper.order_hold (leaf, ordering_key, head)
    SELECT m.leaf, m.ordering_key, m.call_id
      FROM mine m JOIN leafhopper.leaf_control c ON c.leaf = m.leaf AND c.hold_after_failed_head
     WHERE m.over AND m.ordering_key IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT m.call_id, m.over FROM mine m
