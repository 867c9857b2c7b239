-- Record what a probe found out of one call in doubt.
-- Caller:      store/probe.rs, from engine/ask.rs
-- Index:       dispatch_pkey, result_pkey, dispatch_held_key
-- Locks:       its own row; skips it where another transaction holds it
-- Repeatable:  yes; a second time finds the doubt gone
-- $1 int8 call id   $2 int4 tries as seen   $3 text leaf   $4 text key
-- $5 text adopt | not_executed | again | park | rejected
-- $6 float8 again: delay, s   $7 text park: reason   $8 int4 unclear answers to count   $9 int4 max_attempts
-- $10 int4 status   $11 text headers as JSON   $12 text body as JSON, or NULL   $13 bytea body otherwise, or NULL
-- $14 bool weak   $15 bytea request hash   $16 text class for the history, or NULL   $17 text error
-- $18 text body excerpt   $19 float8 how long it took, s   $20 text instance name
-- $21 float8 when its latest attempt can last have been alive, as it was seen before the leaf was asked
-- $22 bool the body is not whole   $23 int4 after so many crashes in a row it is not sent without a person's word
-- Gives the state that the call is in now, the reason, and whether its effect stood already; no row where something
-- else decided it meanwhile.
WITH own AS MATERIALIZED (
    SELECT d.*, d.key AS excludes,
           1 + coalesce((SELECT max(r.generation) FROM leafhopper.result r
                          WHERE r.leaf = $3 AND r.key = $4 AND r.undone_at IS NOT NULL), 0) AS generation
      FROM leafhopper.dispatch d
     -- By its id: see record_plain.sql.
     WHERE d.call_id = $1 AND d.state || '' = 'in_doubt' AND d.tries = $2 AND NOT d.resend
       FOR UPDATE OF d SKIP LOCKED
),
-- What was not executed is sent, unless its time is over. What stands is asked for when the row is locked.
decided AS MATERIALIZED (
    SELECT o.*, s.generation AS standing, s.call_id AS standing_call,
           CASE WHEN s.generation IS NOT NULL OR $5 = 'adopt' THEN 'confirmed'
                WHEN $5 = 'again' THEN 'in_doubt'
                -- An attempt that was taken for dead has ended meanwhile: the absence was seen before that.
                WHEN $5 IN ('not_executed', 'rejected') AND extract(epoch FROM o.alive_until)::float8 <> $21 THEN 'in_doubt'
                WHEN $5 = 'park' THEN 'parked'
                WHEN $5 = 'rejected' THEN 'failed'
                WHEN o.cancel_requested IS NOT NULL
                     OR (o.batch_id IS NOT NULL AND o.run_when = 'ready' AND NOT leafhopper.batch_is_open(o.batch_id))
                THEN 'cancelled'
                WHEN o.deadline <= clock_timestamp() THEN 'expired'
                WHEN o.attempts >= $9 THEN 'failed'
                -- What was not executed may still be what its instances went down with.
                WHEN o.crashes >= $23 THEN 'parked'
                ELSE 'pending' END AS next
      FROM own o LEFT JOIN LATERAL leafhopper.standing($3, $4) s ON true
),
reasoned AS (
    SELECT o.call_id,
           CASE o.next WHEN 'parked' THEN coalesce($7, 'crash_suspect')
                       WHEN 'failed' THEN CASE WHEN $5 = 'rejected' THEN 'rejected' ELSE 'attempts_exhausted' END
                       WHEN 'cancelled' THEN coalesce(o.cancel_requested, 'batch_cancelled') END AS why
      FROM decided o
),
placed AS (
    -- What it found is the latest attempt's: an answer to that one that comes late is no second confirmation.
    INSERT INTO leafhopper.result (leaf, key, generation, call_id, batch_id, attempts, attempt, status, headers, body,
                                   body_raw, truncated, source, weak, request_hash, alive_until)
    SELECT $3, $4, o.generation, o.call_id, o.batch_id, o.attempts, $2, $10, $11::jsonb, $12::jsonb, $13, $22, 'adopted', $14, $15,
           -- What is gone may have gone otherwise, and the request that was to undo it arrive later.
           CASE WHEN o.undoes IS NOT NULL THEN o.alive_until END
      FROM decided o WHERE o.next = 'confirmed' AND o.standing IS NULL
    ON CONFLICT (leaf, key, generation) DO NOTHING
    RETURNING call_id
),
moved AS (
    UPDATE leafhopper.dispatch d
       SET state = o.next,
           due_at = clock_timestamp() + make_interval(secs => CASE WHEN o.next = 'in_doubt' THEN $6 ELSE 0 END),
           reason = r.why,
           probes = CASE WHEN o.next = 'pending' THEN 0 ELSE d.probes + $8 END,
           in_doubt_since = CASE WHEN o.next = 'pending' THEN NULL ELSE d.in_doubt_since END,
           last_status = coalesce($10, d.last_status),
           last_error = coalesce($17, d.last_error)
      FROM decided o JOIN reasoned r USING (call_id)
     WHERE d.call_id = o.call_id AND o.next IN ('pending', 'in_doubt', 'parked')
),
gone AS (
    DELETE FROM leafhopper.dispatch d USING decided o
     WHERE d.call_id = o.call_id AND o.next NOT IN ('pending', 'in_doubt', 'parked')
),
ended AS (
    INSERT INTO leafhopper.finished (call_id, batch_id, state, reason, attempts, last_status, last_error, generation,
                                     fails_batch)
    SELECT o.call_id, o.batch_id, o.next, r.why, o.attempts, o.last_status, o.last_error,
           CASE WHEN o.next = 'confirmed' THEN coalesce(o.standing, o.generation) END,
           o.next <> 'confirmed' AND leafhopper.failure_cancels(o.batch_id, o.run_when)
      FROM decided o JOIN reasoned r USING (call_id)
     WHERE o.next NOT IN ('pending', 'in_doubt', 'parked')
       AND o.call_id NOT IN (SELECT p.call_id FROM placed p) AND o.standing_call IS DISTINCT FROM o.call_id
),
held_order AS (
    INSERT INTO leafhopper.order_hold (leaf, ordering_key, head)
    SELECT o.leaf, o.ordering_key, o.call_id
      FROM decided o JOIN leafhopper.leaf_control c ON c.leaf = o.leaf AND c.hold_after_failed_head
     WHERE o.ordering_key IS NOT NULL AND o.next IN ('failed', 'cancelled', 'expired')
    ON CONFLICT DO NOTHING
),
-- Who waits for the key may go, the first of them; one that somebody holds is left to the sweep.
waiting AS MATERIALIZED (
    SELECT w.call_id
      FROM decided o
     CROSS JOIN LATERAL (
        SELECT w.call_id FROM leafhopper.dispatch w
         WHERE w.leaf = o.leaf AND w.key = o.excludes AND w.held = 'key'
         ORDER BY w.call_id LIMIT 1
           FOR UPDATE OF w SKIP LOCKED) w
     WHERE o.next NOT IN ('in_doubt', 'parked')
),
freed AS (
    UPDATE leafhopper.dispatch d SET held = NULL FROM waiting w WHERE d.call_id = w.call_id
),
history AS (
    INSERT INTO leafhopper.attempt (call_id, attempt, started_at, class, status, error, body, instance)
    SELECT o.call_id, o.tries, now() - make_interval(secs => $19), $16, $10, $17, $18, $20
      FROM decided o WHERE $16 IS NOT NULL
)
SELECT o.next, r.why, o.standing IS NOT NULL AS stood FROM decided o JOIN reasoned r USING (call_id)
