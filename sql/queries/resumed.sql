-- Leaves that a person has resumed, and when.
-- Caller:      store/instance.rs, from engine/heartbeat.rs
-- Index:       none: a row for each leaf
-- Locks:       none
-- Repeatable:  yes
SELECT c.leaf, extract(epoch FROM c.resumed_at)::float8 AS at
  FROM leafhopper.leaf_control c WHERE c.resumed_at IS NOT NULL
