-- Let the next call behind each of these failed heads go, once.
-- Caller:      store/operator/apply.rs, after act_lock.sql
-- Index:       order_hold_head, dispatch_held_order
-- Locks:       the holds
-- Repeatable:  no: a second time there is no hold
-- $1 int8[] the heads   $2 text reason
WITH freed AS MATERIALIZED (
    DELETE FROM leafhopper.order_hold h WHERE h.head = ANY ($1) RETURNING h.head, h.leaf, h.ordering_key
)
SELECT f.head AS id, 'released' AS state, f.leaf, f.ordering_key,
       (SELECT min(d.call_id) FROM leafhopper.dispatch d
         WHERE d.leaf = f.leaf AND d.ordering_key = f.ordering_key AND d.held = 'order') AS next,
       leafhopper.note('release', f.head, NULL, f.leaf, $2)::text AS noted,
       leafhopper.wake()::text AS woken
  FROM freed f
