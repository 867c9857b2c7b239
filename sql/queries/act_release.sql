-- Let the next call behind a failed head go, once.
-- Caller:      store/operator/act.rs, after act_lock.sql
-- Index:       order_hold_head
-- Locks:       the hold
-- Repeatable:  no: a second time there is no hold
-- $1 int8 the head   $2 text reason
WITH freed AS MATERIALIZED (
    DELETE FROM leafhopper.order_hold h WHERE h.head = $1 RETURNING h.leaf, h.ordering_key
)
SELECT f.leaf, f.ordering_key,
       (SELECT min(d.call_id) FROM leafhopper.dispatch d
         WHERE d.leaf = f.leaf AND d.ordering_key = f.ordering_key AND d.held = 'order') AS next,
       leafhopper.note('release', $1, NULL, f.leaf, $2)::text AS noted,
       leafhopper.wake()::text AS woken
  FROM freed f
