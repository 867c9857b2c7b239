-- Send again to one leaf, or to all; breakers that opened before are closed.
-- Caller:      store/operator/leaves.rs, after act_lock.sql
-- Index:       leaf_control_pkey
-- Locks:       the leaves' rows
-- Repeatable:  yes
-- $1 text leaf, or NULL for all   $2 text reason
WITH resumed AS (
    UPDATE leafhopper.leaf_control c SET paused = false, resumed_at = clock_timestamp(), updated_at = now()
     WHERE $1 IS NULL OR c.leaf = $1
    RETURNING c.leaf
)
SELECT r.leaf, leafhopper.note('resume', NULL, NULL, r.leaf, $2)::text AS noted, leafhopper.wake()::text AS woken
  FROM resumed r
 ORDER BY r.leaf
