-- Ids of batches, the newest first, a page at a time. One without a row counts as open, for as long as calls of it
-- are live.
-- Caller:      store/operator/batches.rs
-- Index:       batch_created, batch_live, batch_failed, batch_pkey, dispatch_batch
-- Locks:       none
-- Repeatable:  yes
-- $1 text state or NULL   $2 bool only stuck ones   $3 uuid after this one, or NULL   $4 int8 at most so many
WITH start AS MATERIALIZED (
    SELECT coalesce((SELECT b.created_at FROM leafhopper.batch b WHERE b.id = $3),
                    (SELECT min(d.enqueued_at) FROM leafhopper.dispatch d WHERE d.batch_id = $3),
                    (SELECT min(o.created_at) FROM leafhopper.outbox o WHERE o.batch_id = $3)) AS at
),
stuck AS MATERIALIZED (
    SELECT now() - value::interval AS since FROM leafhopper.setting WHERE name = 'stuck_after'
)
SELECT p.id
  FROM ((SELECT b.id, b.created_at AS at FROM leafhopper.batch b
          WHERE ($1 IS NULL OR b.state = $1)
            AND (NOT $2 OR b.state IN ('open', 'cancelling', 'compensating')
                           AND leafhopper.batch_waits_since(b) < (SELECT s.since FROM stuck s))
            AND ($3 IS NULL OR (b.created_at, b.id) < ((SELECT s.at FROM start s), $3))
          ORDER BY b.created_at DESC, b.id DESC LIMIT $4)
         UNION ALL
        (SELECT l.id, l.at
           FROM (SELECT d.batch_id AS id, min(d.enqueued_at) AS at FROM leafhopper.dispatch d
                  WHERE d.batch_id IS NOT NULL AND NOT $2 AND coalesce($1, 'open') = 'open' GROUP BY d.batch_id) l
          -- Looked up for each: a join could read all batches there ever were.
          WHERE (SELECT b.id FROM leafhopper.batch b WHERE b.id = l.id) IS NULL
            AND ($3 IS NULL OR (l.at, l.id) < ((SELECT s.at FROM start s), $3))
          ORDER BY l.at DESC, l.id DESC LIMIT $4)) p
 ORDER BY p.at DESC, p.id DESC
 LIMIT $4
