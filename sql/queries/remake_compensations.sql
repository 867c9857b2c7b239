-- Give compensations that a person sends again the request that is made of what is configured by now. Their rows are the
-- sidecar's own, and nothing of them is under way.
-- Caller:      store/teardown.rs, from engine/teardown.rs, in the transaction of effects_to_undo.sql
-- Index:       dispatch_pkey, outbox_pkey
-- Locks:       their rows; skips those that another transaction holds
-- Repeatable:  yes
-- $1 int8[] compensations   $2 text[] method   $3 text[] path   $4 text[] body as JSON, or NULL
WITH own AS MATERIALIZED (
    SELECT d.call_id, w.method, w.path, w.body
      FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[]) AS w (call_id, method, path, body)
      JOIN leafhopper.dispatch d USING (call_id)
     WHERE d.state = 'pending' AND d.held = 'batch' AND d.undoes IS NOT NULL
       FOR UPDATE OF d SKIP LOCKED
)
UPDATE leafhopper.outbox o SET method = w.method, path = w.path, body = w.body::jsonb
  FROM own w WHERE o.id = w.call_id
RETURNING o.id
