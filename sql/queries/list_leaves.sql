-- The leaves that an instance knows, or that a person or an instance has said something of, by name.
-- Caller:      store/operator/leaves.rs
-- Index:       leaf_control_pkey, operator_action_leaf
-- Locks:       none
-- Repeatable:  yes
WITH alive AS MATERIALIZED (
    SELECT l.key AS leaf, l.value AS said FROM leafhopper.instance i, jsonb_each(i.leaves) l
     WHERE i.heartbeat_at + i.lease > now()
), named AS (
    SELECT c.leaf FROM leafhopper.leaf_control c UNION SELECT a.leaf FROM alive a
)
SELECT n.leaf, k.instances, coalesce(c.paused, false) AS paused, p.actor, p.reason, p.at,
       coalesce(c.hold_after_failed_head, false) AS holds,
       k.breaker_open, k.rate_limited, k.blocked
  FROM named n
  LEFT JOIN leafhopper.leaf_control c USING (leaf)
 CROSS JOIN LATERAL (
    SELECT count(*) AS instances,
           coalesce(bool_or((a.said ->> 'breaker_open')::boolean), false) AS breaker_open,
           coalesce(bool_or((a.said ->> 'rate_limited')::boolean), false) AS rate_limited,
           ARRAY(SELECT DISTINCT b.name FROM alive x, jsonb_array_elements_text(x.said -> 'blocked') b (name)
                  WHERE x.leaf = n.leaf ORDER BY b.name) AS blocked
      FROM alive a WHERE a.leaf = n.leaf) k
  LEFT JOIN LATERAL (
    SELECT x.actor, x.reason, to_jsonb(x.at) #>> '{}' AS at FROM leafhopper.operator_action x
     WHERE x.leaf = n.leaf AND x.action IN ('pause', 'resume') AND c.paused ORDER BY x.id DESC LIMIT 1) p ON true
 ORDER BY n.leaf
