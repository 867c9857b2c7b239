-- Say who acts, and lock where the named calls stand, so that what was shown still holds when it is acted on.
-- Caller:      store/operator/apply.rs, first in the transaction of each change
-- Index:       dispatch_pkey, finished_pkey
-- Locks:       the named rows, by id
-- Repeatable:  yes
-- $1 text actor   $2 int8[] ids
WITH actor AS MATERIALIZED (
    SELECT set_config('leafhopper.actor', $1, true) AS name
),
live AS MATERIALIZED (
    SELECT d.call_id, d.attempts FROM leafhopper.dispatch d
     WHERE d.call_id = ANY ($2) ORDER BY d.call_id FOR UPDATE
),
ended AS MATERIALIZED (
    SELECT f.call_id, f.attempts FROM leafhopper.finished f
     WHERE f.call_id = ANY ($2) ORDER BY f.call_id FOR UPDATE
)
SELECT t.call_id, t.attempts
  FROM (SELECT * FROM live UNION ALL SELECT * FROM ended) t, actor
