-- Take up calls that the insert trigger did not see (session_replication_role = replica, or triggers that were
-- disabled): in two windows, each of the newest rows below an id, those that are neither live nor final.
-- Caller:      store/sweep.rs, from engine/untracked.rs, after untracked_lock.sql
-- Index:       outbox_pkey backwards, then dispatch_pkey, finished_pkey and result_pkey for each row
-- Locks:       none but the new rows
-- Repeatable:  yes
--
-- Its cost is $3 rows of each window with three look-ups each, 6 ms for 2,000 rows in memory, whatever the history:
-- there is no index that knows what is not there, and an anti-join over all of 10 million rows takes many seconds. So
-- two windows are looked at in each pass: the newest rows, where untracked ones appear, and one of a walk through
-- the rest, which takes a day for 10 million rows and finds what was inserted while no sidecar ran. A window
-- that finds something is followed by the next one at once.
-- OFFSET 0 keeps each NOT EXISTS, and the row itself, a look-up: as joins, the planner reads a whole table while it is not huge.
-- Rows that a logical subscription copies here are another database's to send.
-- $1 int8 below this id   $2 int8 and below that one, or NULL   $3 int4 so many rows of each
WITH looked AS MATERIALIZED (
    SELECT w.place, r.id, r.leaf, r.key
      FROM (VALUES (1, $1::int8), (2, $2::int8)) AS w (place, below)
     CROSS JOIN LATERAL (
        SELECT o.id, o.leaf, o.key FROM leafhopper.outbox o
         WHERE o.id < w.below ORDER BY o.id DESC LIMIT $3) r
),
untracked AS MATERIALIZED (
    SELECT l.place, l.id FROM looked l
     WHERE NOT EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.call_id = l.id OFFSET 0)
       AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.call_id = l.id OFFSET 0)
       AND NOT EXISTS (SELECT FROM leafhopper.result r
                        WHERE r.leaf = l.leaf AND r.key = l.key AND r.call_id = l.id OFFSET 0)
       AND NOT EXISTS (SELECT FROM pg_subscription_rel s WHERE s.srrelid = 'leafhopper.outbox'::regclass)
),
taken_up AS (
    INSERT INTO leafhopper.dispatch (call_id, leaf, key, ordering_key, batch_id, run_when, undoes, priority,
                                     credential, timeout, deadline, held, due_at, enqueued_at)
    SELECT o.id, o.leaf,
           CASE WHEN o.undoes IS NULL THEN o.key ELSE regexp_replace(o.key, ':undo:[0-9]+$', '') END,
           o.ordering_key, o.batch_id, o.run_when, o.undoes, o.priority, o.credential, o.timeout,
           nullif(o.deadline, 'infinity'),
           CASE WHEN o.run_when <> 'ready' THEN 'batch' WHEN o.ordering_key IS NOT NULL THEN 'arrived' END,
           CASE WHEN o.not_before > clock_timestamp() THEN o.not_before END,
           clock_timestamp()
      FROM (SELECT DISTINCT u.id FROM untracked u) u
     CROSS JOIN LATERAL (SELECT x.* FROM leafhopper.outbox x WHERE x.id = u.id OFFSET 0) o
    RETURNING call_id, batch_id
),
marked AS (
    INSERT INTO leafhopper.batch_mark (batch_id)
    SELECT DISTINCT t.batch_id FROM taken_up t WHERE t.batch_id IS NOT NULL
)
SELECT (SELECT min(l.id) FROM looked l WHERE l.place = 1) AS lowest_newest,
       (SELECT min(l.id) FROM looked l WHERE l.place = 2) AS lowest_walked,
       EXISTS (SELECT FROM untracked u WHERE u.place = 1) AS among_newest,
       EXISTS (SELECT FROM untracked u WHERE u.place = 2) AS among_walked,
       (SELECT count(*) FROM taken_up) AS taken_up
