-- Batches that wait for somebody or have not moved for long, the oldest first; and the call of each that a person could
-- move. Those of which an effect could not be undone are among them at once.
-- Caller:      store/operator/watch.rs, at most once in a second
-- Index:       batch_live, dispatch_batch, finished_batch: live batches only; of one that is torn down, its own rows
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 at most so many   $2 int8 of batches that are being undone, the oldest so many are looked at
WITH limits AS MATERIALIZED (
    SELECT now() - value::interval AS since FROM leafhopper.setting WHERE name = 'stuck_after'
),
live AS MATERIALIZED (
    SELECT b, leafhopper.batch_waits_since(b) AS waits_since
      FROM leafhopper.batch b WHERE b.state IN ('open', 'cancelling', 'compensating')
),
undone AS MATERIALIZED (
    SELECT l.b, l.waits_since, leafhopper.batch_reason(l.b) AS reason
      FROM live l WHERE (l.b).state = 'compensating' ORDER BY l.waits_since LIMIT $2
),
-- The others that are stuck, and those beyond the so many that were looked at.
late AS MATERIALIZED (
    SELECT l.b, l.waits_since FROM live l, limits
     WHERE l.waits_since < limits.since AND (l.b).id NOT IN (SELECT (u.b).id FROM undone u)
),
found AS MATERIALIZED (
    SELECT u.b, u.waits_since, u.reason FROM undone u, limits
     WHERE u.waits_since < limits.since OR u.reason = 'teardown_incomplete'
     UNION ALL
    SELECT t.b, t.waits_since, CASE WHEN (t.b).state = 'open' THEN 'unsealed' END FROM late t
),
named AS MATERIALIZED (
    SELECT f.*, count(*) OVER () AS all_batches FROM found f ORDER BY f.waits_since, (f.b).id LIMIT $1
)
SELECT (n.b).id AS id, (n.b).name AS name, (n.b).state AS state, n.reason, n.all_batches,
       extract(epoch FROM now() - n.waits_since)::float8 AS waits,
       coalesce(
           (SELECT min(d.call_id) FROM leafhopper.dispatch d
             WHERE d.batch_id = (n.b).id AND d.state = 'parked'
               AND CASE WHEN (n.b).state = 'cancelling' THEN d.run_when = 'ready' ELSE d.undoes IS NOT NULL END),
           (SELECT min(f.call_id)
              FROM leafhopper.finished f JOIN leafhopper.outbox c ON c.id = f.call_id AND c.undoes IS NOT NULL
              JOIN leafhopper.result r ON r.leaf = c.leaf AND r.key = regexp_replace(c.key, ':undo:[0-9]+$', '')
                                      AND r.generation::text = substring(c.key FROM ':undo:([0-9]+)$')
             WHERE (n.b).state = 'compensating' AND f.batch_id = (n.b).id AND f.state = 'failed'
               AND r.undone_at IS NULL)) AS call
  FROM named n
 ORDER BY n.waits_since, (n.b).id
