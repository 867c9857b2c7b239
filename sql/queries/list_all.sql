-- Ids of all calls, a page at a time.
-- Caller:      store/operator/list.rs
-- Index:       outbox_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 text leaf or NULL   $2 int8 after this id   $3 bool newest first   $4 int8 at most so many
(SELECT o.id FROM leafhopper.outbox o
  WHERE $3 AND o.id < $2 AND ($1 IS NULL OR o.leaf = $1) ORDER BY o.id DESC LIMIT $4)
 UNION ALL
(SELECT o.id FROM leafhopper.outbox o
  WHERE NOT $3 AND o.id > $2 AND ($1 IS NULL OR o.leaf = $1) ORDER BY o.id LIMIT $4)
