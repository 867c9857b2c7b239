-- Stop sending to a leaf. `known` is false where no instance has ever said that it knows the leaf.
-- Caller:      store/operator/leaves.rs, after act_lock.sql
-- Index:       leaf_control_pkey
-- Locks:       the leaf's row
-- Repeatable:  yes
-- $1 text leaf   $2 text reason
WITH known AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = $1)
        OR EXISTS (SELECT FROM leafhopper.instance i WHERE i.leaves ? $1) AS known
),
paused AS (
    INSERT INTO leafhopper.leaf_control (leaf, paused) VALUES ($1, true)
    ON CONFLICT (leaf) DO UPDATE SET paused = true, updated_at = now()
)
SELECT k.known, leafhopper.note('pause', NULL, NULL, $1, $2)::text AS noted FROM known k
