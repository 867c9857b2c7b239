-- The ordering keys that have waiting calls but no head: what a crash or a race left to be repaired.
-- Caller:      store/order.rs, from engine/promoter.rs
-- Index:       dispatch_held_order by loose scan, dispatch_one_head
-- Locks:       none
-- Repeatable:  yes
-- $1 int4 at most so many
WITH RECURSIVE keys (leaf, ordering_key) AS (
    (SELECT d.leaf, d.ordering_key FROM leafhopper.dispatch d
      WHERE d.held = 'order' ORDER BY d.leaf, d.ordering_key LIMIT 1)
    UNION ALL
    SELECT n.leaf, n.ordering_key
      FROM keys k
     CROSS JOIN LATERAL (
        SELECT d.leaf, d.ordering_key FROM leafhopper.dispatch d
         WHERE d.held = 'order' AND (d.leaf, d.ordering_key) > (k.leaf, k.ordering_key)
         ORDER BY d.leaf, d.ordering_key LIMIT 1) n
)
SELECT k.leaf, k.ordering_key FROM keys k
 WHERE NOT EXISTS (SELECT FROM leafhopper.dispatch x
                    WHERE x.leaf = k.leaf AND x.ordering_key = k.ordering_key AND (x.held IS NULL OR x.held = 'key'))
   AND NOT EXISTS (SELECT FROM leafhopper.order_hold h
                    WHERE h.leaf = k.leaf AND h.ordering_key = k.ordering_key)
 LIMIT $1
