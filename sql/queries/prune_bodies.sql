-- Take the bodies from results that are old enough, and leave the rest: one window of them. Those of a batch that is not
-- over stay, since what undoes them may be made of them.
-- Caller:      store/prune.rs, from engine/janitor.rs and cli/prune.rs
-- Index:       result_seq, batch_pkey, outbox_batch
-- Locks:       the results' rows, skipping those that another transaction holds; an advisory lock of the transaction, without
--              waiting for it
-- Repeatable:  yes
-- $1 bool prune, else count alone   $2 float8 confirmed so long ago, s   $3 int8 behind this seq   $4 int4 look at so many rows
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtext('leafhopper.prune')) AS mine,
           statement_timestamp() - make_interval(secs => $2) AS before
),
looked AS MATERIALIZED (
    SELECT r.*, t.before
      FROM turn t
     CROSS JOIN LATERAL (
        SELECT r.seq, r.batch_id, r.confirmed_at, r.body IS NOT NULL OR r.body_raw IS NOT NULL AS has_body
          FROM leafhopper.result r WHERE r.seq > $3 ORDER BY r.seq LIMIT $4) r
     WHERE t.mine AND NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
),
old AS MATERIALIZED (
    SELECT l.seq
      FROM looked l
      LEFT JOIN LATERAL (SELECT b.finished_at FROM leafhopper.batch b WHERE b.id = l.batch_id LIMIT 1) b ON true
     WHERE l.has_body AND l.confirmed_at < l.before
       AND (l.batch_id IS NULL OR b.finished_at IS NOT NULL
            OR NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.batch_id = l.batch_id OFFSET 0))
),
locked AS MATERIALIZED (
    SELECT r.seq FROM leafhopper.result r
     WHERE r.seq = ANY (ARRAY(SELECT o.seq FROM old o)) FOR UPDATE SKIP LOCKED
),
-- What is left of the leaf's word is not all of it.
bodies AS (
    UPDATE leafhopper.result r SET body = NULL, body_raw = NULL, truncated = true
     WHERE $1 AND r.seq = ANY (ARRAY(SELECT l.seq FROM locked l))
)
SELECT t.mine,
       (SELECT max(l.seq) FROM looked l) AS last,
       -- Those without a body are not looked at again.
       (SELECT min(l.seq) FROM looked l
         WHERE l.has_body AND (NOT $1 OR l.seq NOT IN (SELECT k.seq FROM locked k))) AS kept,
       (SELECT count(*) = $4 AND bool_or(l.confirmed_at < l.before) FROM looked l) AS more,
       (SELECT count(*) FROM locked) AS result_bodies
  FROM turn t
