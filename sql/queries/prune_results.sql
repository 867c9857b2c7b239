-- Prune results whose keys are no longer in use: one window of them. All that is known of a key goes together: each
-- generation, and what undid it; and only where no call of the key is left, since one that was confirmed would be an
-- untracked one without its result, and be sent.
-- Caller:      store/prune.rs, from engine/janitor.rs and cli/prune.rs
-- Index:       result_seq, result_pkey, outbox_key
-- Locks:       the results that go, skipping those that another transaction holds; an advisory lock of the transaction, without
--              waiting for it
-- Repeatable:  yes
-- $1 bool prune, else count alone   $2 float8 nothing has become of them for so long, s   $3 int8 behind this seq
-- $4 int4 look at so many rows
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('leafhopper.prune')) AS mine,
           statement_timestamp() - make_interval(secs => $2) AS before
),
looked AS MATERIALIZED (
    SELECT r.*, t.before
      FROM turn t
     CROSS JOIN LATERAL (
        SELECT r.seq, r.leaf, r.key, r.confirmed_at FROM leafhopper.result r
         WHERE r.seq > $3 ORDER BY r.seq LIMIT $4) r
     WHERE t.mine AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
),
-- What undid an effect goes with it; without it, by itself.
keys AS MATERIALIZED (
    SELECT DISTINCT l.leaf, l.key, l.before
      FROM looked l
     WHERE l.confirmed_at < l.before
       AND NOT (l.key ~ ':undo:[0-9]+$' AND EXISTS (
                SELECT FROM leafhopper.result e
                 WHERE e.leaf = l.leaf AND e.key = regexp_replace(l.key, ':undo:[0-9]+$', '') OFFSET 0))
),
known AS MATERIALIZED (
    SELECT k.leaf, k.key, k.before, r.key AS own, r.generation, r.seq, r.confirmed_at, r.undone_at, r.alive_until
      FROM keys k
     CROSS JOIN LATERAL (
        SELECT r.* FROM leafhopper.result r WHERE r.leaf = k.leaf AND r.key = k.key OFFSET 0) r
     UNION ALL
    SELECT k.leaf, k.key, k.before, u.key, u.generation, u.seq, u.confirmed_at, u.undone_at, u.alive_until
      FROM keys k
     CROSS JOIN LATERAL (
        SELECT r.key || ':undo:' || r.generation AS key FROM leafhopper.result r
         WHERE r.leaf = k.leaf AND r.key = k.key OFFSET 0) r
     CROSS JOIN LATERAL (
        SELECT u.* FROM leafhopper.result u WHERE u.leaf = k.leaf AND u.key = r.key OFFSET 0) u
),
unused AS MATERIALIZED (
    SELECT k.leaf, k.key FROM keys k
     WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.leaf = k.leaf AND o.key = k.key OFFSET 0)
       AND NOT EXISTS (
           SELECT FROM known n
            WHERE n.leaf = k.leaf AND n.key = k.key
              AND (greatest(n.confirmed_at, n.undone_at, n.alive_until) >= k.before
                   OR n.own = k.key AND EXISTS (
                      SELECT FROM leafhopper.outbox o
                       WHERE o.leaf = k.leaf AND o.key = k.key || ':undo:' || n.generation OFFSET 0)))
),
locked AS MATERIALIZED (
    SELECT r.seq FROM leafhopper.result r
     WHERE r.seq = ANY (ARRAY(SELECT n.seq FROM known n JOIN unused u USING (leaf, key)))
       FOR UPDATE SKIP LOCKED
),
-- Where somebody is just forgetting an effect, the key stays.
gone AS MATERIALIZED (
    SELECT n.seq
      FROM known n JOIN unused u USING (leaf, key)
     WHERE (n.leaf, n.key) NOT IN (SELECT m.leaf, m.key FROM known m WHERE m.seq NOT IN (SELECT l.seq FROM locked l))
),
results AS (
    DELETE FROM leafhopper.result r WHERE $1 AND r.seq = ANY (ARRAY(SELECT g.seq FROM gone g))
)
SELECT t.mine,
       (SELECT max(l.seq) FROM looked l) AS last,
       (SELECT min(l.seq) FROM looked l WHERE NOT $1 OR l.seq NOT IN (SELECT g.seq FROM gone g)) AS kept,
       (SELECT count(*) = $4 AND bool_or(l.confirmed_at < l.before) FROM looked l) AS more,
       (SELECT count(*) FROM gone) AS results
  FROM turn t
