-- All instances, for shares of limits and for takeovers.
-- Caller:      store/instance.rs, from engine/heartbeat.rs
-- Index:       none: a handful of rows
-- Locks:       none
-- Repeatable:  yes
SELECT i.id, i.beat, i.heartbeat_at + i.lease > clock_timestamp() AS alive, i.membership,
       ARRAY(SELECT jsonb_object_keys(i.leaves) ORDER BY 1) AS leaf_names
  FROM leafhopper.instance i ORDER BY i.id
