-- Let the next call of each given ordering key go, where the key has no head and is not held.
-- Caller:      store/order.rs, from engine/promoter.rs
-- Index:       dispatch_held_order, dispatch_arrived, dispatch_one_head
-- Locks:       the promoted rows; where another transaction holds a key's first row, the key waits: the
--              second must not overtake it
-- Repeatable:  yes
-- $1 text[] leaf   $2 text[] ordering key
WITH first AS MATERIALIZED (
    SELECT n.call_id
      FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) AS u (leaf, ordering_key)) k
     CROSS JOIN LATERAL (
        SELECT d.call_id FROM leafhopper.dispatch d
         WHERE d.leaf = k.leaf AND d.ordering_key = k.ordering_key AND d.held = 'order'
         ORDER BY d.call_id LIMIT 1) n
     WHERE NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.leaf = k.leaf AND x.ordering_key = k.ordering_key AND (x.held IS NULL OR x.held = 'key'))
       AND NOT EXISTS (SELECT FROM leafhopper.order_hold h
                        WHERE h.leaf = k.leaf AND h.ordering_key = k.ordering_key)
       -- One that has just arrived goes before; once it is looked at, it is the first of those that wait.
       AND NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.held = 'arrived' AND x.call_id < n.call_id
                          AND x.leaf = k.leaf AND x.ordering_key = k.ordering_key)
),
next AS MATERIALIZED (
    SELECT d.call_id FROM leafhopper.dispatch d
     WHERE d.call_id IN (SELECT f.call_id FROM first f) AND d.held = 'order'
       FOR UPDATE SKIP LOCKED
)
UPDATE leafhopper.dispatch d SET held = NULL FROM next n WHERE d.call_id = n.call_id
RETURNING d.call_id
