-- Record what an attempt came to when it did not confirm: retry, doubt, park, or an end.
-- Caller:      store/record.rs, from engine/recorder.rs; in a transaction with a lock_timeout
-- Index:       dispatch_pkey, result_pkey, dispatch_held_key
-- Locks:       own rows, in the order of their ids; skips what another transaction holds
-- Repeatable:  yes; a second time finds its own line in the history and changes nothing
-- $1 uuid instance   $2 text instance name   and for each:
-- $3 int8[] call id   $4 int8[] round   $5 text[] leaf   $6 text[] key   $7 int4[] attempt number
-- $8 text[] retry | wait (what stands is about to be undone) | doubt | ask | exists | park | failed | prior
-- $9 int4[] attempts spent   $10 float8[] delay, s
-- $11 bool[] doubt: resend   $12 text[] reason   $13 text[] class for the history, or NULL for none
-- $14 int4[] status   $15 text[] error   $16 text[] body excerpt   $17 float8[] how long it took, s
-- $18 int4[] prior: the result's generation
-- Gives for each: the state that it is in now | superseded (a newer attempt decides) | locked (try again)
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($3::int8[], $4::int8[], $5::text[], $6::text[], $7::int4[], $8::text[], $9::int4[], $10::float8[],
                  $11::bool[], $12::text[], $13::text[], $14::int4[], $15::text[], $16::text[], $17::float8[], $18::int4[])
        AS i (call_id, round, leaf, key, attempt, kind, spent, delay, resend, reason, class, status, error, excerpt,
              took, generation)
),
-- Recorded before, by a commit whose reply was lost. A takeover's line for the same attempt has another error.
known AS MATERIALIZED (
    SELECT i.call_id, i.attempt FROM input i
     WHERE i.class IS NOT NULL
       AND EXISTS (SELECT FROM leafhopper.attempt a
                    WHERE a.call_id = i.call_id AND a.attempt = i.attempt AND a.class = i.class
                      AND a.status IS NOT DISTINCT FROM i.status AND a.error IS NOT DISTINCT FROM i.error)
),
-- The claim is named; it stays on the row until a newer one, so a late answer still decides its call
-- after a takeover while no newer attempt has begun.
seen AS MATERIALIZED (
    SELECT d.call_id FROM input i JOIN leafhopper.dispatch d USING (call_id)
     WHERE d.instance = $1 AND d.round = i.round
),
own AS MATERIALIZED (
    -- A claim that somebody took over meanwhile has been counted as an attempt by the takeover.
    SELECT i.*,
           d.attempts + i.spent - CASE WHEN d.state <> 'dispatching' AND d.crashes > 0 THEN 1 ELSE 0 END AS spent_now,
           d.batch_id, d.run_when, d.ordering_key, d.key AS excludes, d.cancel_requested
      FROM input i JOIN leafhopper.dispatch d USING (call_id)
     WHERE d.instance = $1 AND d.round = i.round
       AND (i.call_id, i.attempt) NOT IN (SELECT k.call_id, k.attempt FROM known k)
       -- Nor while this statement was on its way to the row.
       AND (d.state = 'dispatching' OR NOT leafhopper.is_told(i.call_id, i.attempt, i.class, i.status, i.error))
     ORDER BY d.call_id
       FOR UPDATE OF d SKIP LOCKED
),
-- The app's word, written while the request was under way, ends the call whatever the attempt says; it is
-- looked for after the row is locked. What stands is no answer to a call whose request is another one.
decided AS MATERIALIZED (
    SELECT o.*, s.generation AS standing, s.call_id AS standing_call,
           CASE WHEN o.kind = 'failed' AND o.reason = 'key_conflict' THEN 'failed'
                WHEN s.generation IS NOT NULL AND o.kind <> 'wait' THEN 'confirmed'
                WHEN o.kind = 'prior' THEN 'confirmed'
                WHEN o.kind IN ('retry', 'wait') AND o.cancel_requested IS NOT NULL THEN 'cancelled'
                WHEN o.kind IN ('retry', 'wait') THEN 'pending'
                WHEN o.kind IN ('doubt', 'ask', 'exists') THEN 'in_doubt'
                WHEN o.kind = 'park' THEN 'parked'
                ELSE 'failed' END AS state
      FROM own o LEFT JOIN LATERAL leafhopper.standing(o.leaf, o.key) s ON true
),
moved AS (
    UPDATE leafhopper.dispatch d
       SET state = o.state,
           -- A late doubt can find its call waiting again, behind another one of its key.
           held = CASE WHEN o.state = 'pending' THEN d.held END,
           attempts = o.spent_now,
           due_at = CASE WHEN o.state = 'in_doubt' AND o.cancel_requested IS NOT NULL THEN clock_timestamp()
                         ELSE clock_timestamp() + make_interval(secs => o.delay) END,
           resend = o.state = 'in_doubt' AND o.resend AND o.cancel_requested IS NULL,
           in_doubt_since = CASE WHEN o.state = 'pending' THEN NULL ELSE coalesce(d.in_doubt_since, clock_timestamp()) END,
           crashes = 0, probes = 0,
           -- It waits for another batch's teardown, which can be a person's affair: that is nothing to give up on.
           give_up_at = CASE WHEN o.kind <> 'wait' THEN d.give_up_at END,
           exists_said = o.kind = 'exists',
           -- The attempt's end is on record: from here on an absence can settle.
           alive_until = clock_timestamp(),
           reason = CASE WHEN o.state = 'parked' THEN o.reason END,
           last_status = coalesce(o.status, d.last_status),
           last_error = coalesce(o.error, d.last_error)
      FROM decided o
     WHERE d.call_id = o.call_id AND o.state IN ('pending', 'in_doubt', 'parked')
),
gone AS (
    DELETE FROM leafhopper.dispatch d USING decided o
     WHERE d.call_id = o.call_id AND o.state IN ('confirmed', 'cancelled', 'failed')
),
ended AS (
    INSERT INTO leafhopper.finished (call_id, batch_id, state, reason, attempts, last_status, last_error, generation,
                                     fails_batch)
    SELECT o.call_id, o.batch_id, o.state,
           CASE o.state WHEN 'failed' THEN o.reason WHEN 'cancelled' THEN o.cancel_requested END,
           o.spent_now, o.status, o.error,
           CASE WHEN o.state = 'confirmed' THEN coalesce(o.standing, o.generation) END,
           o.state <> 'confirmed' AND leafhopper.failure_cancels(o.batch_id, o.run_when)
      FROM decided o WHERE o.state IN ('confirmed', 'cancelled', 'failed')
       AND o.standing_call IS DISTINCT FROM o.call_id
),
held_order AS (
    INSERT INTO leafhopper.order_hold (leaf, ordering_key, head)
    SELECT o.leaf, o.ordering_key, o.call_id
      FROM decided o JOIN leafhopper.leaf_control c ON c.leaf = o.leaf AND c.hold_after_failed_head
     WHERE o.ordering_key IS NOT NULL AND o.state IN ('failed', 'cancelled')
    ON CONFLICT DO NOTHING
),
-- Who waits for the key may go, the first of them; one that somebody holds is left to the sweep. A late answer's own call can
-- be one that waits again, and a statement changes a row once (PostgreSQL, chapter 7.8.4).
waiting AS MATERIALIZED (
    SELECT w.call_id
      FROM decided o
     CROSS JOIN LATERAL (
        SELECT w.call_id FROM leafhopper.dispatch w
         WHERE w.leaf = o.leaf AND w.key = o.excludes AND w.held = 'key'
           AND w.call_id NOT IN (SELECT m.call_id FROM own m)
         ORDER BY w.call_id LIMIT 1
           FOR UPDATE OF w SKIP LOCKED) w
     WHERE o.state NOT IN ('in_doubt', 'parked')
),
freed AS (
    UPDATE leafhopper.dispatch d SET held = NULL FROM waiting w WHERE d.call_id = w.call_id
),
history AS (
    INSERT INTO leafhopper.attempt (call_id, attempt, started_at, class, status, error, body, instance)
    SELECT i.call_id, i.attempt, now() - make_interval(secs => i.took), i.class, i.status, i.error,
           i.excerpt, $2
      FROM input i
     WHERE i.class IS NOT NULL
       AND (i.call_id, i.attempt) NOT IN (SELECT k.call_id, k.attempt FROM known k)
       AND (i.call_id IN (SELECT o.call_id FROM own o) OR i.call_id NOT IN (SELECT s.call_id FROM seen s))
)
SELECT i.call_id,
       CASE WHEN o.call_id IS NOT NULL THEN o.state
            WHEN (i.call_id, i.attempt) IN (SELECT k.call_id, k.attempt FROM known k)
                THEN coalesce((SELECT d.state FROM leafhopper.dispatch d WHERE d.call_id = i.call_id),
                              (SELECT f.state FROM leafhopper.finished f WHERE f.call_id = i.call_id), 'confirmed')
            WHEN s.call_id IS NOT NULL THEN 'locked'
            ELSE 'superseded' END AS outcome,
       EXISTS (SELECT FROM waiting) AS frees
  FROM input i
  LEFT JOIN seen s USING (call_id)
  LEFT JOIN decided o USING (call_id)
