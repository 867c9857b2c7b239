-- The instances, those whose lease runs first.
-- Caller:      store/operator/leaves.rs
-- Index:       none: a handful of rows
-- Locks:       none
-- Repeatable:  yes
SELECT (SELECT to_jsonb(l) FROM (
           SELECT i.id, i.name, i.started_at, i.heartbeat_at, i.heartbeat_at + i.lease > now() AS alive,
                  ARRAY(SELECT jsonb_object_keys(i.leaves) ORDER BY 1) AS leaves) l)::text AS json
  FROM leafhopper.instance i
 ORDER BY i.heartbeat_at + i.lease > now() DESC, i.started_at, i.id
