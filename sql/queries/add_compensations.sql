-- Add the calls that undo effects, each once. An effect that somebody is just forgetting is left to the next look.
-- Caller:      store/teardown.rs, from engine/teardown.rs, in the transaction of effects_to_undo.sql
-- Index:       outbox_compensation, result_pkey, outbox_pkey
-- Locks:       the effects' results; skips those that another transaction holds
-- Repeatable:  yes: an effect has one compensation
-- $1 int8[] the calls whose effects are undone   $2 int4[] their results' generations
-- $3 text[] method   $4 text[] path   $5 text[] body as JSON, or NULL
WITH wanted AS (
    SELECT * FROM unnest($1::int8[], $2::int4[], $3::text[], $4::text[], $5::text[])
        AS w (call_id, generation, method, path, body)
),
stands AS MATERIALIZED (
    SELECT w.*, r.leaf, r.key
      FROM wanted w
      JOIN leafhopper.outbox o ON o.id = w.call_id
      JOIN leafhopper.result r ON r.leaf = o.leaf AND r.key = o.key AND r.generation = w.generation
     WHERE r.undone_at IS NULL
       FOR UPDATE OF r SKIP LOCKED
),
-- A new version of the row: forget() in a transaction whose snapshot is older, and that does not see what is added here,
-- is refused as one that can't be serialized.
touched AS (
    UPDATE leafhopper.result r SET attempts = r.attempts
      FROM stands s WHERE r.leaf = s.leaf AND r.key = s.key AND r.generation = s.generation
)
INSERT INTO leafhopper.outbox (leaf, key, method, path, body, batch_id, run_when, priority, timeout, credential, meta, undoes)
SELECT s.leaf, s.key || ':undo:' || s.generation, s.method, s.path, s.body::jsonb, o.batch_id, 'batch_failed', o.priority,
       o.timeout, o.credential, o.meta, s.call_id
  FROM stands s JOIN leafhopper.outbox o ON o.id = s.call_id
ON CONFLICT (leaf, key) WHERE undoes IS NOT NULL DO NOTHING
RETURNING id, undoes
