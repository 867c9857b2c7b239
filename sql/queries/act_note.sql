-- Keep who did what to everything, and why.
-- Caller:      store/operator/leaves.rs, first in the transaction of the change, or before it
-- Index:       none
-- Locks:       none
-- Repeatable:  no: it is kept twice
-- $1 text actor   $2 text action   $3 text reason
WITH actor AS MATERIALIZED (
    SELECT set_config('leafhopper.actor', $1, true) AS name
)
SELECT leafhopper.note($2, NULL, NULL, NULL, $3)::text AS noted FROM actor a WHERE a.name IS NOT NULL
