-- End calls in doubt whose effect stands by now: somebody said so while the request was under way, and then
-- its instance vanished, so that no attempt was left to hear it.
-- Caller:      store/doubt.rs, from engine/prober.rs
-- Index:       dispatch_doubt, outbox_pkey, result_pkey
-- Locks:       the ended rows; skips rows that another transaction holds
-- Repeatable:  yes
-- $1 text[] leaves   $2 int4 at most so many of each
WITH answered AS MATERIALIZED (
    SELECT d.* FROM unnest($1::text[]) AS w (leaf)
     CROSS JOIN LATERAL (
        SELECT x.call_id, x.leaf, x.key AS excludes, x.ordering_key, x.batch_id, x.undoes, x.attempts, x.last_status,
               x.last_error, r.generation, r.call_id AS owner,
               o.meta ->> 'traceparent' AS traceparent, o.meta ->> 'tracestate' AS tracestate
          FROM leafhopper.dispatch x
          JOIN leafhopper.outbox o ON o.id = x.call_id
          -- The call's own key: a compensation's row holds the key of the effect that it undoes.
          JOIN leafhopper.result r ON r.leaf = o.leaf AND r.key = o.key AND r.undone_at IS NULL
         WHERE x.leaf = w.leaf AND x.state = 'in_doubt' AND x.due_at <= statement_timestamp()
         ORDER BY x.due_at LIMIT $2
           FOR UPDATE OF x SKIP LOCKED) d
),
gone AS (
    DELETE FROM leafhopper.dispatch d USING answered a WHERE d.call_id = a.call_id
),
ended AS (
    INSERT INTO leafhopper.finished (call_id, batch_id, state, attempts, last_status, last_error, generation)
    SELECT a.call_id, a.batch_id, 'confirmed', a.attempts, a.last_status, a.last_error, a.generation
      FROM answered a WHERE a.owner IS DISTINCT FROM a.call_id
),
-- Who waits for the key may go, the first of them; one that somebody holds is left to the sweep.
waiting AS MATERIALIZED (
    SELECT w.call_id
      FROM answered a
     CROSS JOIN LATERAL (
        SELECT w.call_id FROM leafhopper.dispatch w
         WHERE w.leaf = a.leaf AND w.key = a.excludes AND w.held = 'key'
         ORDER BY w.call_id LIMIT 1
           FOR UPDATE OF w SKIP LOCKED) w
),
freed AS (
    UPDATE leafhopper.dispatch d SET held = NULL FROM waiting w WHERE d.call_id = w.call_id
)
SELECT a.call_id, a.leaf, a.ordering_key, a.batch_id, a.undoes IS NOT NULL AS compensates, a.traceparent, a.tracestate
  FROM answered a
