-- Prune calls without a batch that have ended long ago, with their attempts: one window of the outbox.
-- Caller:      store/prune.rs, from engine/janitor.rs and cli/prune.rs
-- Index:       outbox_pkey, finished_pkey, result_pkey, dispatch_pkey, outbox_key, order_hold_head, attempt_call, attempt_pkey
-- Locks:       the ends of what goes, skipping those that another transaction holds; an advisory lock of the transaction,
--              without waiting for it
-- Repeatable:  yes
-- $1 bool prune, else count alone   $2 float8 ended so long ago, s   $3 int8 behind this id   $4 int4 look at so many rows
--
-- A row of the outbox goes in the statement that takes its end: one without an end would be taken up as untracked, and
-- sent. OFFSET 0 keeps each NOT EXISTS a look-up.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('leafhopper.prune')) AS mine,
           statement_timestamp() - make_interval(secs => $2) AS before
),
looked AS MATERIALIZED (
    SELECT o.*, t.before
      FROM turn t
     CROSS JOIN LATERAL (
        SELECT o.id, o.leaf, o.key, o.batch_id, o.created_at FROM leafhopper.outbox o
         WHERE o.id > $3 ORDER BY o.id LIMIT $4) o
     WHERE t.mine AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
),
ended AS MATERIALIZED (
    SELECT l.id, f.call_id IS NOT NULL AS has_end
      FROM looked l
      LEFT JOIN LATERAL (SELECT f.* FROM leafhopper.finished f WHERE f.call_id = l.id LIMIT 1) f ON true
      LEFT JOIN LATERAL (
          SELECT r.confirmed_at FROM leafhopper.result r
           WHERE r.leaf = l.leaf AND r.key = l.key AND r.call_id = l.id LIMIT 1) r ON true
     WHERE l.batch_id IS NULL AND l.created_at < l.before
       AND coalesce(f.finished_at, r.confirmed_at) < l.before
       AND NOT EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.call_id = l.id OFFSET 0)
       -- Those behind it wait for a word about it.
       AND NOT EXISTS (SELECT FROM leafhopper.order_hold h WHERE h.head = l.id OFFSET 0)
       -- Calls of one key go together. One that was confirmed from the record goes by itself.
       AND (f.generation IS NOT NULL OR NOT EXISTS (
            SELECT FROM leafhopper.outbox x
             WHERE x.leaf = l.leaf AND x.key = l.key AND x.id <> l.id
               AND (coalesce((SELECT e.finished_at FROM leafhopper.finished e WHERE e.call_id = x.id),
                             (SELECT e.confirmed_at FROM leafhopper.result e
                               WHERE e.leaf = x.leaf AND e.key = x.key AND e.call_id = x.id LIMIT 1),
                             'infinity') >= l.before
                    OR (SELECT d.call_id FROM leafhopper.dispatch d WHERE d.call_id = x.id) IS NOT NULL)
             OFFSET 0))
),
-- What somebody is just reviving, or what an answer that came late is about, stays.
locked AS MATERIALIZED (
    SELECT f.call_id FROM leafhopper.finished f
     WHERE f.call_id = ANY (ARRAY(SELECT e.id FROM ended e WHERE e.has_end)) AND NOT f.fails_batch
       FOR UPDATE SKIP LOCKED
),
gone AS MATERIALIZED (
    SELECT e.id FROM ended e WHERE NOT e.has_end OR e.id IN (SELECT l.call_id FROM locked l)
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
-- So that people are told what became of it, and that what is not there is not taken for a lost commit.
told AS (
    INSERT INTO leafhopper.setting AS s (name, value)
    SELECT 'calls_pruned_to', max(g.id)::text FROM gone g WHERE $1 HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value WHERE s.value::int8 < EXCLUDED.value::int8
)
SELECT t.mine,
       (SELECT max(l.id) FROM looked l) AS last,
       (SELECT min(l.id) FROM looked l WHERE NOT $1 OR l.id NOT IN (SELECT g.id FROM gone g)) AS kept,
       (SELECT count(*) = $4 AND bool_or(l.created_at < l.before) FROM looked l) AS more,
       (SELECT count(*) FROM gone) AS calls,
       (SELECT count(*) FROM history) AS attempts
  FROM turn t
