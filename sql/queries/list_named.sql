-- Ids of the calls of a batch or of an effect key, a page at a time.
-- Caller:      store/operator/list.rs
-- Index:       outbox_batch, outbox_key
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid batch or NULL   $2 text key or NULL   $3 text leaf or NULL
-- $4 int8 after this id   $5 bool newest first   $6 int8 at most so many
WITH RECURSIVE leaf AS (
    -- Every leaf that a row names, each found by one step in the index: a key alone is no prefix of it.
    SELECT coalesce($3, (SELECT min(o.leaf) FROM leafhopper.outbox o)) AS name
     UNION ALL
    SELECT (SELECT min(o.leaf) FROM leafhopper.outbox o WHERE o.leaf > l.name)
      FROM leaf l WHERE $3 IS NULL AND $2 IS NOT NULL AND l.name IS NOT NULL
),
-- Materialised: else a LIMIT could talk the planner into walking all ids in their order.
named AS MATERIALIZED (
    SELECT o.id FROM leafhopper.outbox o
     WHERE $2 IS NULL AND o.batch_id = $1 AND ($3 IS NULL OR o.leaf = $3)
     UNION ALL
    SELECT o.id FROM leaf l JOIN leafhopper.outbox o ON o.leaf = l.name AND o.key = $2
     WHERE $2 IS NOT NULL AND ($1 IS NULL OR o.batch_id = $1)
)
SELECT n.id FROM named n
 WHERE CASE WHEN $5 THEN n.id < $4 ELSE n.id > $4 END
 ORDER BY CASE WHEN $5 THEN -n.id ELSE n.id END
 LIMIT $6
