-- Look at calls with an ordering key for the first time: the first of a key that has no head becomes its
-- head, the others wait behind it.
-- Caller:      store/order.rs, from engine/promoter.rs
-- Index:       dispatch_arrived, dispatch_one_head, dispatch_held_order
-- Locks:       the looked-at rows; skips rows that another transaction holds
-- Repeatable:  yes
-- $1 int4 at most so many
WITH arrived AS MATERIALIZED (
    SELECT d.call_id, d.leaf, d.ordering_key FROM leafhopper.dispatch d
     WHERE d.held = 'arrived'
     ORDER BY d.call_id LIMIT $1
       FOR UPDATE SKIP LOCKED
),
first AS (
    SELECT DISTINCT ON (a.leaf, a.ordering_key) a.call_id
      FROM arrived a
     WHERE NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.leaf = a.leaf AND x.ordering_key = a.ordering_key AND (x.held IS NULL OR x.held = 'key'))
       AND NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.leaf = a.leaf AND x.ordering_key = a.ordering_key AND x.held = 'order')
       -- Another transaction holds it, perhaps another promoter's: it must not be overtaken.
       AND NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.held = 'arrived' AND x.call_id < a.call_id
                          AND x.leaf = a.leaf AND x.ordering_key = a.ordering_key)
       AND NOT EXISTS (SELECT FROM leafhopper.order_hold h
                        WHERE h.leaf = a.leaf AND h.ordering_key = a.ordering_key)
     ORDER BY a.leaf, a.ordering_key, a.call_id
)
UPDATE leafhopper.dispatch d
   SET held = CASE WHEN a.call_id IN (SELECT f.call_id FROM first f) THEN NULL ELSE 'order' END
  FROM arrived a
 WHERE d.call_id = a.call_id
RETURNING d.call_id, d.held IS NULL AS head
