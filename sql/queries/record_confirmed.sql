-- Record what leaves confirmed: the results appear, the calls leave the hot table.
-- Caller:      store/record.rs, from engine/recorder.rs; in a transaction with a lock_timeout
-- Index:       dispatch_pkey, finished_pkey, outbox_pkey, result_pkey, dispatch_held_key
-- Locks:       own rows, in the order of their ids; skips what another transaction holds
-- Repeatable:  yes; a second time finds its own result, and says what it said before
-- For each confirmation:
-- $1 int8[] call id   $2 text[] leaf   $3 text[] key   $4 int4[] attempt number   $5 int4[] status
-- $6 text[] headers as JSON   $7 text[] body as JSON, or NULL   $8 bytea[] body otherwise, or NULL
-- $9 bool[] truncated   $10 bytea[] request hash   $11 float8[] how long the attempt took, s   and $12 text instance name
-- Gives for each: recorded | stood (a result stood already; the call ends as confirmed)
--               | again (the call was confirmed) | locked (try again)
WITH input AS MATERIALIZED (
    SELECT *
      FROM unnest($1::int8[], $2::text[], $3::text[], $4::int4[], $5::int4[], $6::text[], $7::text[], $8::bytea[],
                  $9::bool[], $10::bytea[], $11::float8[])
        AS i (call_id, leaf, key, attempt, status, headers, body, body_raw, truncated, request_hash, took)
),
seen AS MATERIALIZED (
    SELECT d.call_id FROM leafhopper.dispatch d WHERE d.call_id IN (SELECT i.call_id FROM input i)
),
-- Recorded before, by a commit whose reply was lost. That is no second confirmation. OFFSET 0 keeps each EXISTS a look-up:
-- PostgreSQL 18 else hashes all of the table, whatever enable_seqscan says.
known AS MATERIALIZED (
    SELECT i.call_id, i.attempt FROM input i
     WHERE EXISTS (SELECT FROM leafhopper.result r
                    WHERE r.leaf = i.leaf AND r.key = i.key AND r.call_id = i.call_id AND r.attempt = i.attempt
                   OFFSET 0)
        OR EXISTS (SELECT FROM leafhopper.attempt a
                    WHERE a.call_id = i.call_id AND a.attempt = i.attempt AND a.class = 'confirmed_again'
                   OFFSET 0)
),
-- Whatever state it is in: a confirmation of a call that is not final is never dropped.
own AS MATERIALIZED (
    -- A claim that somebody took over is counted already, and so is the attempt before a newer claim's.
    SELECT i.*, d.attempts + CASE WHEN d.state = 'dispatching' THEN 1 ELSE 0 END AS spent, d.batch_id, d.key AS excludes,
           1 + coalesce((SELECT max(r.generation) FROM leafhopper.result r
                          WHERE r.leaf = i.leaf AND r.key = i.key AND r.undone_at IS NOT NULL), 0) AS generation,
           -- Another attempt than the one that was answered: a newer one, or one before it whose end nobody knows.
           CASE WHEN d.tries <> i.attempt OR d.state <> 'dispatching' THEN d.alive_until
                WHEN d.in_doubt_since IS NOT NULL THEN d.claimed_at END AS alive_until
      FROM input i JOIN leafhopper.dispatch d USING (call_id)
     ORDER BY d.call_id
       FOR UPDATE OF d SKIP LOCKED
),
-- It ended as not executed, and was: nobody could know that its request would still land.
disproved AS MATERIALIZED (
    SELECT f.call_id FROM input i JOIN leafhopper.finished f USING (call_id)
     WHERE f.state <> 'confirmed'
       AND i.call_id NOT IN (SELECT s.call_id FROM seen s)
       AND (i.call_id, i.attempt) NOT IN (SELECT k.call_id, k.attempt FROM known k)
),
late AS MATERIALIZED (
    SELECT i.*, f.attempts AS spent, f.batch_id,
           1 + coalesce((SELECT max(r.generation) FROM leafhopper.result r
                          WHERE r.leaf = i.leaf AND r.key = i.key AND r.undone_at IS NOT NULL), 0) AS generation
      FROM input i JOIN leafhopper.finished f USING (call_id)
     -- While that end is the only word of a batch's failure, it stays; look_at_batches.sql takes it over at once.
     WHERE i.call_id IN (SELECT e.call_id FROM disproved e) AND NOT f.fails_batch
     ORDER BY f.call_id
       FOR UPDATE OF f SKIP LOCKED
),
-- Its call was pruned meanwhile. What its request did is on record all the same.
pruned AS MATERIALIZED (
    SELECT i.*,
           1 + coalesce((SELECT max(r.generation) FROM leafhopper.result r
                          WHERE r.leaf = i.leaf AND r.key = i.key AND r.undone_at IS NOT NULL), 0) AS generation
      FROM input i
     WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.id = i.call_id)
       AND (i.call_id, i.attempt) NOT IN (SELECT k.call_id, k.attempt FROM known k)
),
placed AS (
    INSERT INTO leafhopper.result (leaf, key, generation, call_id, batch_id, attempts, attempt, status, headers, body,
                                   body_raw, truncated, source, request_hash, alive_until)
    SELECT o.leaf, o.key, o.generation, o.call_id, o.batch_id, o.spent, o.attempt, o.status, o.headers::jsonb, o.body::jsonb,
           o.body_raw, o.truncated, 'response', o.request_hash, o.alive_until
      FROM (SELECT call_id, batch_id, leaf, key, generation, spent, attempt, status, headers, body, body_raw,
                   truncated, request_hash, alive_until FROM own
             UNION ALL
            SELECT call_id, batch_id, leaf, key, generation, spent, attempt, status, headers, body, body_raw,
                   truncated, request_hash, NULL FROM late
             UNION ALL
            SELECT call_id, NULL, leaf, key, generation, attempt, attempt, status, headers, body, body_raw,
                   truncated, request_hash, NULL FROM pruned) o
    ON CONFLICT (leaf, key, generation) DO NOTHING
    RETURNING call_id
),
gone AS (
    DELETE FROM leafhopper.dispatch d USING own o WHERE d.call_id = o.call_id
),
corrected AS (
    DELETE FROM leafhopper.finished f USING late l
     WHERE f.call_id = l.call_id AND l.call_id IN (SELECT p.call_id FROM placed p)
),
let_go AS (
    DELETE FROM leafhopper.order_hold h USING late l
     WHERE h.head = l.call_id AND l.call_id IN (SELECT p.call_id FROM placed p)
),
ended AS (
    INSERT INTO leafhopper.finished (call_id, batch_id, state, attempts, last_status, generation)
    SELECT o.call_id, o.batch_id, 'confirmed', o.spent, o.status, o.generation
      FROM own o
      LEFT JOIN LATERAL leafhopper.standing(o.leaf, o.key) s ON true
     WHERE o.call_id NOT IN (SELECT p.call_id FROM placed p)
       -- The app's word can be this very call's result.
       AND s.call_id IS DISTINCT FROM o.call_id
),
-- A second confirmation never vanishes.
history AS (
    INSERT INTO leafhopper.attempt (call_id, attempt, started_at, class, status, body, instance)
    SELECT i.call_id, i.attempt, now() - make_interval(secs => i.took), 'confirmed_again', i.status,
           left(i.body, 2000), $12
      FROM input i
     WHERE (i.call_id IN (SELECT o.call_id FROM own o WHERE o.call_id NOT IN (SELECT p.call_id FROM placed p))
            OR i.call_id NOT IN (SELECT s.call_id FROM seen s)
               AND i.call_id NOT IN (SELECT p.call_id FROM placed p)
               AND i.call_id NOT IN (SELECT e.call_id FROM disproved e WHERE e.call_id NOT IN (SELECT l.call_id FROM late l)))
       AND (i.call_id, i.attempt) NOT IN (SELECT k.call_id, k.attempt FROM known k)
),
-- Who waits for the key may go, the first of them; one that somebody holds is left to the sweep. A late answer's own call can
-- be one that waits again, and a statement changes a row once (PostgreSQL, chapter 7.8.4).
waiting AS MATERIALIZED (
    SELECT w.call_id
      FROM own o
     CROSS JOIN LATERAL (
        SELECT w.call_id FROM leafhopper.dispatch w
         WHERE w.leaf = o.leaf AND w.key = o.excludes AND w.held = 'key'
           AND w.call_id NOT IN (SELECT m.call_id FROM own m)
         ORDER BY w.call_id LIMIT 1
           FOR UPDATE OF w SKIP LOCKED) w
),
freed AS (
    UPDATE leafhopper.dispatch d SET held = NULL FROM waiting w WHERE d.call_id = w.call_id
)
SELECT i.call_id,
       CASE WHEN p.call_id IS NOT NULL OR (i.call_id, i.attempt) IN (SELECT k.call_id, k.attempt FROM known k)
                THEN 'recorded'
            -- Its only request is what the app, or a person, had heard of already.
            WHEN o.call_id IS NOT NULL AND i.attempt = 1
                 AND (SELECT t.source FROM leafhopper.standing(o.leaf, o.key) t) IN ('application', 'operator') THEN 'said'
            WHEN o.call_id IS NOT NULL THEN 'stood'
            WHEN s.call_id IS NOT NULL OR e.call_id IS NOT NULL AND l.call_id IS NULL THEN 'locked'
            ELSE 'again' END AS outcome,
       EXISTS (SELECT FROM waiting) AS frees
  FROM input i
  LEFT JOIN seen s USING (call_id)
  LEFT JOIN own o USING (call_id)
  LEFT JOIN disproved e USING (call_id)
  LEFT JOIN late l USING (call_id)
  LEFT JOIN placed p USING (call_id)
