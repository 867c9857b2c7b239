-- What people did lately one by one, the newest first. What a job did to many is told by its row; so that it does not
-- push out the rest, more are looked through than are shown.
-- Caller:      store/operator/watch.rs, at most once in a second
-- Index:       operator_action_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 at most so many   $2 int8 of the latest so many
WITH latest AS MATERIALIZED (
    SELECT a.* FROM leafhopper.operator_action a ORDER BY a.id DESC LIMIT $2
)
SELECT a.actor, a.action, a.call_id, a.batch_id, a.leaf, a.reason,
       extract(epoch FROM now() - a.at)::float8 AS ago
  FROM latest a
 WHERE NOT a.detail ? 'job'
 ORDER BY a.id DESC LIMIT $1
