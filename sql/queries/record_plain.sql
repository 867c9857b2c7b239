-- Record what leaves confirmed where nothing came between: the results appear, the calls leave the hot table.
-- Caller:      store/record.rs, from engine/recorder.rs; in a transaction with a lock_timeout
-- Index:       dispatch_pkey, result_pkey, dispatch_held_key
-- Locks:       own rows; skips what another transaction holds
-- Repeatable:  yes; a second time finds no call
-- For each confirmation of a first attempt's answer, or of a later one's where no doubt was left behind:
-- $1 int8[] call id   $2 text[] leaf   $3 text[] key   $4 int4[] attempt number   $5 int4[] status
-- $6 text[] headers as JSON   $7 text[] body as JSON, or NULL   $8 bytea[] body otherwise, or NULL
-- $9 bool[] truncated   $10 bytea[] request hash   $11 int4[] generation, as at the claim
-- Gives the calls that are recorded, and whether that lets others go. Of the others something is to be said that record_confirmed.sql knows: a newer
-- attempt, a doubt, a takeover, a word that was there before.
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($1::int8[], $2::text[], $3::text[], $4::int4[], $5::int4[], $6::text[], $7::text[], $8::bytea[],
                  $9::bool[], $10::bytea[], $11::int4[])
        AS i (call_id, leaf, key, attempt, status, headers, body, body_raw, truncated, request_hash, generation)
),
-- With all that is recorded: a join of few rows is one that the planner makes by comparing each with each. Each call is
-- looked up by its id: the planner must not see that dispatch_one_at_a_time covers the state. It else reads all of that index,
-- which has few calls and, while an old snapshot is open, an entry of each that was ever there.
own AS MATERIALIZED (
    SELECT i.*, d.attempts + 1 AS spent, d.batch_id, d.key AS excludes
      FROM input i
     CROSS JOIN LATERAL (
        SELECT d.attempts, d.batch_id, d.key FROM leafhopper.dispatch d
         WHERE d.call_id = i.call_id AND d.state || '' = 'dispatching'
           AND d.tries = i.attempt AND d.in_doubt_since IS NULL
           FOR UPDATE SKIP LOCKED) d
),
placed AS (
    INSERT INTO leafhopper.result (leaf, key, generation, call_id, batch_id, attempts, attempt, status, headers, body,
                                   body_raw, truncated, source, request_hash)
    SELECT o.leaf, o.key, o.generation, o.call_id, o.batch_id, o.spent, o.attempt, o.status, o.headers::jsonb, o.body::jsonb,
           o.body_raw, o.truncated, 'response', o.request_hash
      FROM own o
    ON CONFLICT (leaf, key, generation) DO NOTHING
    RETURNING call_id
),
gone AS (
    DELETE FROM leafhopper.dispatch d USING placed p WHERE d.call_id = p.call_id
),
-- Who waits for the key may go, the first of them; one that somebody holds is left to the sweep. Where the result was
-- not placed, this call is still there, and the claim holds that one again.
waiting AS MATERIALIZED (
    SELECT w.call_id
      FROM own o
     CROSS JOIN LATERAL (
        SELECT w.call_id FROM leafhopper.dispatch w
         WHERE w.leaf = o.leaf AND w.key = o.excludes AND w.held = 'key'
         ORDER BY w.call_id LIMIT 1
           FOR UPDATE OF w SKIP LOCKED) w
),
freed AS (
    UPDATE leafhopper.dispatch d SET held = NULL FROM waiting w WHERE d.call_id = w.call_id
)
SELECT p.call_id, EXISTS (SELECT FROM waiting) AS frees FROM placed p
