-- Ids of the calls that ended without a confirmation and hold those behind them, a page at a time.
-- Caller:      store/operator/list.rs
-- Index:       order_hold_head
-- Locks:       none
-- Repeatable:  yes
-- $1 text leaf or NULL   $2 int8 after this id   $3 bool newest first   $4 int8 at most so many
(SELECT h.head AS id FROM leafhopper.order_hold h
  WHERE $3 AND h.head < $2 AND ($1 IS NULL OR h.leaf = $1) ORDER BY h.head DESC LIMIT $4)
 UNION ALL
(SELECT h.head FROM leafhopper.order_hold h
  WHERE NOT $3 AND h.head > $2 AND ($1 IS NULL OR h.leaf = $1) ORDER BY h.head LIMIT $4)
