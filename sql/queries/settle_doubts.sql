-- Write down how calls in doubt go on: parked, or to be sent again with the same key.
-- Caller:      store/doubt.rs, from engine/resolver.rs
-- Index:       dispatch_pkey
-- Locks:       the named rows; skips rows that another transaction holds
-- Repeatable:  yes
-- $1 int8[] call id   $2 int4[] tries as seen   $3 text[] reason to park, or NULL to resend   $4 float8[] delay, s
WITH input AS (
    SELECT * FROM unnest($1::int8[], $2::int4[], $3::text[], $4::float8[]) AS i (call_id, tries, reason, delay)
),
own AS MATERIALIZED (
    SELECT i.* FROM input i JOIN leafhopper.dispatch d USING (call_id)
     WHERE d.state = 'in_doubt' AND d.tries = i.tries
     ORDER BY d.call_id
       FOR UPDATE OF d SKIP LOCKED
)
UPDATE leafhopper.dispatch d
   SET state = CASE WHEN o.reason IS NULL THEN 'in_doubt' ELSE 'parked' END,
       reason = o.reason,
       resend = o.reason IS NULL,
       due_at = clock_timestamp() + make_interval(secs => o.delay)
  FROM own o
 WHERE d.call_id = o.call_id
RETURNING d.call_id, d.leaf, d.state
