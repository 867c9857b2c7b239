-- Prune what people did long ago: one window of it. What a job did stays as long as its row does, and the latest word about
-- a leaf until there is a later one: it says who paused it.
-- Caller:      store/prune.rs, from engine/janitor.rs and cli/prune.rs
-- Index:       operator_action_pkey, operator_action_leaf, job_pkey
-- Locks:       the rows that go; an advisory lock of the transaction, without waiting for it
-- Repeatable:  yes
-- $1 bool prune, else count alone   $2 float8 done so long ago, s   $3 int8 behind this id   $4 int4 look at so many rows
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('leafhopper.prune')) AS mine,
           statement_timestamp() - make_interval(secs => $2) AS before
),
looked AS MATERIALIZED (
    SELECT a.*, t.before
      FROM turn t
     CROSS JOIN LATERAL (
        SELECT a.id, a.at, a.action, a.leaf, a.detail FROM leafhopper.operator_action a
         WHERE a.id > $3 ORDER BY a.id LIMIT $4) a
     WHERE t.mine AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
),
gone AS MATERIALIZED (
    SELECT l.id FROM looked l
     WHERE l.at < l.before
       AND NOT EXISTS (SELECT FROM leafhopper.job j WHERE j.id = (l.detail ->> 'job')::bigint OFFSET 0)
       AND (l.action NOT IN ('pause', 'resume') OR EXISTS (
            SELECT FROM leafhopper.operator_action n
             WHERE n.leaf = l.leaf AND n.action IN ('pause', 'resume') AND n.id > l.id OFFSET 0))
),
actions AS (
    DELETE FROM leafhopper.operator_action a WHERE $1 AND a.id = ANY (ARRAY(SELECT g.id FROM gone g))
)
SELECT t.mine,
       (SELECT max(l.id) FROM looked l) AS last,
       (SELECT min(l.id) FROM looked l WHERE NOT $1 OR l.id NOT IN (SELECT g.id FROM gone g)) AS kept,
       (SELECT count(*) = $4 AND bool_or(l.at < l.before) FROM looked l) AS more,
       (SELECT count(*) FROM gone) AS operator_actions
  FROM turn t
