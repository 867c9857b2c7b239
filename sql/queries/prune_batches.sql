-- Prune batches that have finished long ago, with their calls and these calls' attempts: one window of them. A batch's
-- calls go together, and its row with them; of one that is too large for that, those that failed go first, since nobody
-- may send them again once another one is gone, and its row goes last.
-- Caller:      store/prune.rs, from engine/janitor.rs and cli/prune.rs
-- Index:       batch_created, outbox_batch, finished_pkey, result_pkey, dispatch_pkey, outbox_key, order_hold_head, attempt_call,
--              attempt_pkey, batch_mark_pkey
-- Locks:       the batches' rows and the ends of what goes, skipping those that another transaction holds; an advisory lock of
--              the transaction, without waiting for it
-- Repeatable:  yes
-- $1 bool prune, else count alone   $2 float8 ended so long ago, s   $3 int8 created behind this microsecond of the epoch, or
-- in it with a higher id than   $4 uuid   $5 int4 look at so many batches   $6 int4 of one batch at most so many calls
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('leafhopper.prune')) AS mine,
           statement_timestamp() - make_interval(secs => $2) AS before,
           timestamptz 'epoch' + $3 * interval '1 microsecond' AS behind
),
looked AS MATERIALIZED (
    SELECT b.*, t.before
      FROM turn t
     CROSS JOIN LATERAL (
        SELECT b.id, b.state, b.created_at, b.changed_at, b.finished_at FROM leafhopper.batch b
         WHERE b.created_at < t.before AND (b.created_at, b.id) > (t.behind, $4)
         ORDER BY b.created_at, b.id LIMIT $5) b
     WHERE t.mine AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
),
-- Somebody is to look at these first: a confirmation may have come that is to be undone. They are few, or the batches wait.
marked AS MATERIALIZED (
    SELECT m.batch_id FROM leafhopper.batch_mark m ORDER BY m.id LIMIT 10001
),
over AS MATERIALIZED (
    SELECT l.* FROM looked l
     WHERE (l.finished_at < l.before OR l.state = 'open' AND l.changed_at < l.before)
       AND l.id NOT IN (SELECT m.batch_id FROM marked m) AND (SELECT count(*) FROM marked) <= 10000
),
call AS MATERIALIZED (
    SELECT b.id AS batch, o.id, f.call_id IS NOT NULL AS has_end, coalesce(f.state = 'failed', false) AS failed,
           b.state <> 'open' AND NOT coalesce(f.fails_batch, false)
           AND coalesce(coalesce(f.finished_at, r.confirmed_at) < b.before, false)
           AND NOT EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.call_id = o.id OFFSET 0)
           AND NOT EXISTS (SELECT FROM leafhopper.order_hold h WHERE h.head = o.id OFFSET 0)
           -- As in prune_calls.sql.
           AND (f.generation IS NOT NULL OR NOT EXISTS (
                SELECT FROM leafhopper.outbox x
                 WHERE x.leaf = o.leaf AND x.key = o.key AND x.id <> o.id
                   AND (coalesce((SELECT e.finished_at FROM leafhopper.finished e WHERE e.call_id = x.id),
                                 (SELECT e.confirmed_at FROM leafhopper.result e
                                   WHERE e.leaf = x.leaf AND e.key = x.key AND e.call_id = x.id LIMIT 1),
                                 'infinity') >= b.before
                        OR (SELECT d.call_id FROM leafhopper.dispatch d WHERE d.call_id = x.id) IS NOT NULL)
                 OFFSET 0)) AS may_go
      FROM over b
     CROSS JOIN LATERAL (
        SELECT o.id, o.leaf, o.key FROM leafhopper.outbox o WHERE o.batch_id = b.id OFFSET 0) o
      LEFT JOIN LATERAL (SELECT f.* FROM leafhopper.finished f WHERE f.call_id = o.id LIMIT 1) f ON true
      LEFT JOIN LATERAL (
          SELECT r.confirmed_at FROM leafhopper.result r
           WHERE r.leaf = o.leaf AND r.key = o.key AND r.call_id = o.id LIMIT 1) r ON true
),
rows AS MATERIALIZED (
    SELECT b.id FROM leafhopper.batch b
     WHERE b.id = ANY (ARRAY(SELECT v.id FROM over v WHERE v.id NOT IN (SELECT c.batch FROM call c WHERE NOT c.may_go)))
       FOR UPDATE SKIP LOCKED
),
wanted AS MATERIALIZED (
    SELECT c.*
      FROM (SELECT c.*, row_number() OVER (PARTITION BY c.batch ORDER BY c.failed DESC, c.id) AS place,
                   count(*) OVER (PARTITION BY c.batch) AS calls
              FROM call c WHERE c.batch IN (SELECT r.id FROM rows r)) c
     WHERE c.place <= $6
),
locked AS MATERIALIZED (
    SELECT f.call_id FROM leafhopper.finished f
     WHERE f.call_id = ANY (ARRAY(SELECT w.id FROM wanted w WHERE w.has_end))
       FOR UPDATE SKIP LOCKED
),
-- Where somebody is just reviving a call, or recording what an answer that came late says of it, the batch stays.
going AS MATERIALIZED (
    SELECT r.id, r.id NOT IN (SELECT w.batch FROM wanted w WHERE w.calls > $6) AS whole
      FROM rows r
     WHERE r.id NOT IN (SELECT w.batch FROM wanted w WHERE w.has_end AND w.id NOT IN (SELECT l.call_id FROM locked l))
),
gone AS MATERIALIZED (
    SELECT w.id FROM wanted w WHERE w.batch IN (SELECT g.id FROM going g)
),
history AS MATERIALIZED (
    SELECT a.id FROM leafhopper.attempt a WHERE a.call_id = ANY (ARRAY(SELECT g.id FROM gone g))
),
attempts AS (
    DELETE FROM leafhopper.attempt a WHERE $1 AND a.id = ANY (ARRAY(SELECT h.id FROM history h))
),
ends AS (
    DELETE FROM leafhopper.finished f WHERE $1 AND f.call_id = ANY (ARRAY(SELECT g.id FROM gone g))
),
calls AS (
    DELETE FROM leafhopper.outbox o WHERE $1 AND o.id = ANY (ARRAY(SELECT g.id FROM gone g))
),
batches AS (
    DELETE FROM leafhopper.batch b WHERE $1 AND b.id = ANY (ARRAY(SELECT g.id FROM going g WHERE g.whole))
),
-- As in prune_calls.sql.
told AS (
    INSERT INTO leafhopper.setting AS s (name, value)
    SELECT 'calls_pruned_to', max(g.id)::text FROM gone g WHERE $1 HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value WHERE s.value::int8 < EXCLUDED.value::int8
),
-- What was cut goes on in the next statement, which begins behind what comes before it.
cut AS MATERIALIZED (
    SELECT l.created_at, l.id FROM looked l JOIN going g USING (id)
     WHERE NOT g.whole ORDER BY l.created_at, l.id LIMIT 1
),
last AS MATERIALIZED (
    SELECT l.created_at, l.id FROM looked l
     WHERE NOT EXISTS (SELECT FROM cut c WHERE (c.created_at, c.id) <= (l.created_at, l.id))
     ORDER BY l.created_at DESC, l.id DESC LIMIT 1
),
kept AS MATERIALIZED (
    SELECT l.created_at, l.id FROM looked l
     WHERE NOT $1 OR l.id NOT IN (SELECT g.id FROM going g WHERE g.whole) ORDER BY l.created_at, l.id LIMIT 1
)
SELECT t.mine,
       (SELECT (extract(epoch FROM l.created_at) * 1000000)::int8 FROM last l) AS last,
       (SELECT l.id FROM last l) AS last_id,
       (SELECT (extract(epoch FROM k.created_at) * 1000000)::int8 FROM kept k) AS kept,
       (SELECT count(*) = $5 FROM looked) OR EXISTS (SELECT FROM cut) AS more,
       (SELECT count(*) FROM going g WHERE g.whole) AS batches,
       (SELECT count(*) FROM gone) AS calls,
       (SELECT count(*) FROM history) AS attempts
  FROM turn t
