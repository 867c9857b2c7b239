-- Prune attempts whose calls are gone: what came so late that it is about a pruned call. One window of them.
-- Caller:      store/prune.rs, from engine/janitor.rs and cli/prune.rs
-- Index:       attempt_pkey, outbox_pkey
-- Locks:       the rows that go; an advisory lock of the transaction, without waiting for it
-- Repeatable:  yes
-- $1 bool prune, else count alone   $2 float8 ended so long ago, s   $3 int8 behind this id   $4 int4 look at so many rows
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('leafhopper.prune')) AS mine,
           statement_timestamp() - make_interval(secs => $2) AS before
),
looked AS MATERIALIZED (
    SELECT a.*, t.before
      FROM turn t
     CROSS JOIN LATERAL (
        SELECT a.id, a.call_id, a.finished_at FROM leafhopper.attempt a WHERE a.id > $3 ORDER BY a.id LIMIT $4) a
     WHERE t.mine AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
),
gone AS MATERIALIZED (
    SELECT l.id FROM looked l
     WHERE l.finished_at < l.before AND NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.id = l.call_id OFFSET 0)
),
attempts AS (
    DELETE FROM leafhopper.attempt a WHERE $1 AND a.id = ANY (ARRAY(SELECT g.id FROM gone g))
)
SELECT t.mine,
       (SELECT max(l.id) FROM looked l) AS last,
       (SELECT min(l.id) FROM looked l WHERE NOT $1 OR l.id NOT IN (SELECT g.id FROM gone g)) AS kept,
       (SELECT count(*) = $4 AND bool_or(l.finished_at < l.before) FROM looked l) AS more,
       (SELECT count(*) FROM gone) AS attempts
  FROM turn t
