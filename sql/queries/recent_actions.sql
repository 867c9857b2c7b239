-- What people did lately, the newest first.
-- Caller:      store/operator/watch.rs, at most once in a second
-- Index:       operator_action_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 at most so many
SELECT a.id, a.actor, a.action, a.call_id, a.batch_id, a.leaf, a.reason,
       extract(epoch FROM now() - a.at)::float8 AS ago
  FROM leafhopper.operator_action a
 ORDER BY a.id DESC LIMIT $1
