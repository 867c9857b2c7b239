-- How many calls of each leaf failed in the last hour, among the latest so many that did.
-- Caller:      store/operator/watch.rs, at most once in a second
-- Index:       finished_state, outbox_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 at most so many calls
WITH latest AS MATERIALIZED (
    SELECT f.call_id FROM leafhopper.finished f
     WHERE f.state = 'failed' AND f.finished_at > now() - interval '1 hour'
     ORDER BY f.finished_at DESC LIMIT $1
),
-- One step in the index for each, whatever the planner thinks of their number.
named AS (
    SELECT (SELECT o.leaf FROM leafhopper.outbox o WHERE o.id = l.call_id) AS leaf FROM latest l
)
SELECT n.leaf, count(*) AS calls FROM named n WHERE n.leaf IS NOT NULL GROUP BY n.leaf
