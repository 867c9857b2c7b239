-- Let the next call of each given ordering key go, where the key has no head and is not held.
-- Caller:      store/order.rs, from engine/promoter.rs, under the promoter's transaction lock
-- Index:       dispatch_held_order, dispatch_one_head
-- Locks:       the promoted rows
-- Repeatable:  yes
-- $1 text[] leaf   $2 text[] ordering key
WITH next AS MATERIALIZED (
    SELECT n.call_id
      FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) AS u (leaf, ordering_key)) k
     CROSS JOIN LATERAL (
        SELECT d.call_id FROM leafhopper.dispatch d
         WHERE d.leaf = k.leaf AND d.ordering_key = k.ordering_key AND d.held = 'order'
         ORDER BY d.call_id LIMIT 1
           FOR UPDATE SKIP LOCKED) n
     WHERE NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.leaf = k.leaf AND x.ordering_key = k.ordering_key AND (x.held IS NULL OR x.held = 'key'))
       AND NOT EXISTS (SELECT FROM leafhopper.order_hold h
                        WHERE h.leaf = k.leaf AND h.ordering_key = k.ordering_key)
)
UPDATE leafhopper.dispatch d SET held = NULL FROM next n WHERE d.call_id = n.call_id
RETURNING d.call_id
