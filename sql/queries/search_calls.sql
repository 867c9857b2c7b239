-- Calls by their tags or by a part of their key: among the newest so many, and among the oldest so many that are live.
-- `meta` has no index, since each INSERT of an app would pay for it; so this looks through a bounded number of rows, and
-- says how far it came.
-- Caller:      store/operator/watch.rs
-- Index:       outbox_pkey, dispatch_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 text[] objects of which the tags have to contain one   $2 text part of the key, or NULL
-- $3 int8 before this id   $4 int8 so many are looked through   $5 int8 at most so many are found
WITH newest AS MATERIALIZED (
    SELECT o.id, o.key, o.meta FROM leafhopper.outbox o WHERE o.id < $3 ORDER BY o.id DESC LIMIT $4
),
live AS MATERIALIZED (
    SELECT o.id, o.key, o.meta
      FROM (SELECT d.call_id FROM leafhopper.dispatch d WHERE d.call_id < $3 ORDER BY d.call_id LIMIT $4) d
      JOIN leafhopper.outbox o ON o.id = d.call_id
),
found AS MATERIALIZED (
    SELECT t.id FROM (SELECT * FROM newest UNION ALL SELECT * FROM live) t
     WHERE t.meta @> ANY ($1::jsonb[]) OR position($2 IN t.key) > 0
)
SELECT (SELECT min(n.id) FROM newest n) AS oldest,
       (SELECT count(*) FROM newest n) AS looked_at,
       ARRAY(SELECT DISTINCT f.id FROM found f ORDER BY f.id DESC LIMIT $5) AS ids
