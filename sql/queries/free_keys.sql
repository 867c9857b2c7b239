-- Free calls that wait for a key which nobody holds any more: a hold that crossed with the holder's end.
-- Caller:      store/order.rs, from engine/promoter.rs
-- Index:       dispatch_held_key, dispatch_one_at_a_time
-- Locks:       the freed rows; skips rows that another transaction holds
-- Repeatable:  yes
-- $1 int4 at most so many
WITH stale AS MATERIALIZED (
    SELECT d.call_id FROM leafhopper.dispatch d
     WHERE d.held = 'key'
       AND NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.leaf = d.leaf AND x.key = d.key AND x.state IN ('dispatching', 'in_doubt', 'parked')
                       -- A look-up: see claim.sql.
                       OFFSET 0)
     LIMIT $1
       FOR UPDATE OF d SKIP LOCKED
)
UPDATE leafhopper.dispatch d SET held = NULL FROM stale s WHERE d.call_id = s.call_id
RETURNING d.call_id
