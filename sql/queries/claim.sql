-- Claim due calls of several leaves for one instance: the durable mark "may have been sent".
-- Caller:      store/claim.rs, from engine/dispatcher.rs
-- Index:       dispatch_fresh, dispatch_timed, dispatch_doubt; dispatch_one_at_a_time decides
-- Locks:       the claimed rows; skips rows that another transaction holds
-- Repeatable:  yes; a claim whose reply was lost is given back by its round
-- Of a batch that is not open, only what belongs to its end: follow-ups and compensations that were let go, and the
-- resend by which a call in doubt is asked about.
-- $1 uuid instance   $2 int8 round   $3 text[] leaves   and for each leaf:
-- $4 int4[] slots (at most so many calls)      $5 float8[] timeout, s    $6 float8[] give_up_after, s
-- $7 float8[] idempotency window, s, or NULL   $8 int4[] how many of the oldest go first, whatever their priority
-- $9 text[] JSON arrays of the credentials that may be used ("" is the leaf's own auth)
-- $10 float8 how long a call without such a credential is put off, s
-- $11 int4 so many more may be looked at, to be put off
WITH want AS MATERIALIZED (
    SELECT w.leaf, w.slots, w.aged, w.credentials::jsonb AS credentials,
           make_interval(secs => w.timeout) AS timeout,
           make_interval(secs => w.give_up) AS give_up,
           make_interval(secs => w.time_window) AS time_window
      FROM unnest($3::text[], $4::int4[], $5::float8[], $6::float8[], $7::float8[], $8::int4[], $9::text[])
        AS w (leaf, slots, timeout, give_up, time_window, aged, credentials)
     -- An instance whose lease is over may not claim, nor may anyone in a database that is not the one it was.
     WHERE EXISTS (SELECT FROM leafhopper.instance i WHERE i.id = $1 AND i.heartbeat_at + i.lease > clock_timestamp())
       AND EXISTS (SELECT FROM leafhopper.origin g
                    WHERE g.changed_at IS NULL
                      -- After a failover nothing is claimed before its witnesses have looked (guardian).
                      AND g.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int4)
       AND NOT EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = w.leaf AND c.paused)
),
-- The oldest calls where a leaf has several priorities; found here, locked below.
oldest AS MATERIALIZED (
    SELECT f.call_id
      FROM want w
     CROSS JOIN LATERAL (
        WITH RECURSIVE p (priority) AS (
            (SELECT d.priority FROM leafhopper.dispatch d
              WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
              ORDER BY d.priority LIMIT 1)
            UNION ALL
            SELECT (SELECT d.priority FROM leafhopper.dispatch d
                     WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
                       AND d.priority > p.priority
                     ORDER BY d.priority LIMIT 1)
              FROM p WHERE p.priority IS NOT NULL
        )
        SELECT o.call_id
          FROM p
         CROSS JOIN LATERAL (
            SELECT d.call_id FROM leafhopper.dispatch d
             WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
               AND d.priority = p.priority
             ORDER BY d.call_id LIMIT w.aged) o
         WHERE (SELECT count(priority) FROM p) > 1
         ORDER BY o.call_id LIMIT w.aged) f
     WHERE w.aged > 0
),
aged AS MATERIALIZED (
    SELECT d.call_id, d.leaf, d.key, d.credential, d.suspect, 0 AS priority, 0 AS kind
      FROM leafhopper.dispatch d
     WHERE d.call_id IN (SELECT o.call_id FROM oldest o)
       AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
       AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
       AND (d.batch_id IS NULL OR d.run_when <> 'ready'
            OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open')
                AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch)))
       FOR UPDATE OF d SKIP LOCKED
),
fresh AS MATERIALIZED (
    SELECT c.*, 1 AS kind FROM want w
     CROSS JOIN LATERAL (
        SELECT d.call_id, d.leaf, d.key, d.credential, d.suspect, d.priority
          FROM leafhopper.dispatch d
         WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
           AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
           AND (d.batch_id IS NULL OR d.run_when <> 'ready'
                OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open')
                    AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch)))
         ORDER BY d.priority, d.call_id
         LIMIT w.slots + $11
           FOR UPDATE OF d SKIP LOCKED) c
),
timed AS MATERIALIZED (
    SELECT c.*, 2 AS kind FROM want w
     CROSS JOIN LATERAL (
        SELECT d.call_id, d.leaf, d.key, d.credential, d.suspect, 0 AS priority
          FROM leafhopper.dispatch d
         WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at <= clock_timestamp()
           AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
           AND (d.give_up_at IS NULL OR d.give_up_at > clock_timestamp())
           AND (d.batch_id IS NULL OR d.run_when <> 'ready'
                OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open')
                    AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch)))
         ORDER BY d.due_at
         LIMIT w.slots + $11
           FOR UPDATE OF d SKIP LOCKED) c
),
-- In doubt, and the prober said that the same request may be sent again.
doubt AS MATERIALIZED (
    SELECT c.*, 3 AS kind FROM want w
     CROSS JOIN LATERAL (
        SELECT d.call_id, d.leaf, d.key, d.credential, d.suspect, 0 AS priority
          FROM leafhopper.dispatch d
         WHERE d.leaf = w.leaf AND d.state = 'in_doubt' AND d.resend AND d.due_at <= clock_timestamp()
           AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
           AND (w.time_window IS NULL
                OR d.first_claimed_at + w.time_window >= clock_timestamp() + coalesce(d.timeout, w.timeout))
           AND (d.batch_id IS NULL OR d.run_when <> 'ready' OR d.resend_asks
                OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open')
                    AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch)))
         ORDER BY d.due_at
         LIMIT w.slots + $11
           FOR UPDATE OF d SKIP LOCKED) c
),
found AS MATERIALIZED (
    SELECT a.*, row_number() OVER (PARTITION BY a.leaf, a.key ORDER BY (a.kind = 3) DESC, a.call_id) AS of_its_key
      FROM (SELECT DISTINCT ON (u.call_id) u.*
              FROM (SELECT * FROM aged UNION ALL SELECT * FROM fresh UNION ALL SELECT * FROM timed UNION ALL SELECT * FROM doubt) u
             ORDER BY u.call_id, u.kind) a
),
-- One row for each key, the one in doubt or else the lowest id.
candidate AS MATERIALIZED (
    SELECT f.call_id, f.leaf, f.key, f.credential, f.suspect, f.priority, f.kind FROM found f WHERE f.of_its_key = 1
),
judged AS MATERIALIZED (
    SELECT c.*, w.slots, w.timeout, w.give_up,
           CASE WHEN NOT w.credentials ? coalesce(c.credential, '') THEN 'defer'
                WHEN c.kind <> 3 AND EXISTS (
                     SELECT FROM leafhopper.dispatch x
                      WHERE x.leaf = c.leaf AND x.key = c.key AND x.state IN ('dispatching', 'in_doubt', 'parked'))
                THEN 'hold'
                -- In the lost part of another timeline it may have been executed: a doubt, now that it is its turn.
                WHEN c.suspect THEN 'doubt'
                ELSE 'take' END AS verdict
      FROM candidate c JOIN want w USING (leaf)
),
-- Kinds take turns, so that neither a flood of retries nor one of new calls starves the other.
turn AS (
    SELECT j.*, row_number() OVER (PARTITION BY j.leaf ORDER BY j.kind <> 0, j.position, j.kind) AS place
      FROM (SELECT j.*, row_number() OVER (PARTITION BY j.leaf, j.kind ORDER BY j.priority, j.call_id) AS position
              FROM judged j WHERE j.verdict = 'take') j
),
stays AS (
    SELECT j.call_id, j.verdict FROM judged j WHERE j.verdict <> 'take'
     UNION ALL
    -- Others of a key that this claim takes, or that is held already.
    SELECT f.call_id, 'hold'
      FROM found f JOIN judged j USING (leaf, key) LEFT JOIN turn t ON t.call_id = j.call_id
     WHERE f.of_its_key > 1 AND (j.verdict IN ('hold', 'doubt') OR t.place <= t.slots)
),
put_off AS (
    -- What can't be sent now leaves the claim's index, so that it is not walked over again and again.
    UPDATE leafhopper.dispatch d
       SET held = CASE WHEN s.verdict = 'hold' THEN 'key' ELSE d.held END,
           due_at = CASE s.verdict WHEN 'defer' THEN clock_timestamp() + make_interval(secs => $10)
                                   WHEN 'doubt' THEN clock_timestamp()
                                   ELSE d.due_at END,
           deferred_since = CASE WHEN s.verdict = 'defer' THEN coalesce(d.deferred_since, clock_timestamp()) END,
           state = CASE WHEN s.verdict = 'doubt' THEN 'in_doubt' ELSE d.state END,
           in_doubt_since = CASE WHEN s.verdict = 'doubt' THEN clock_timestamp() ELSE d.in_doubt_since END,
           alive_until = CASE WHEN s.verdict = 'doubt' THEN clock_timestamp() ELSE d.alive_until END,
           first_claimed_at = CASE WHEN s.verdict = 'doubt' THEN coalesce(d.first_claimed_at, clock_timestamp())
                                   ELSE d.first_claimed_at END,
           suspect = d.suspect AND s.verdict <> 'doubt'
      FROM stays s
     WHERE d.call_id = s.call_id
    RETURNING d.call_id
),
taken AS (
    UPDATE leafhopper.dispatch d
       SET state = 'dispatching', instance = $1, round = $2,
           claimed_at = clock_timestamp(),
           alive_until = clock_timestamp() + coalesce(d.timeout, t.timeout),
           tries = d.tries + 1,
           first_claimed_at = coalesce(d.first_claimed_at, clock_timestamp()),
           give_up_at = coalesce(d.give_up_at, clock_timestamp() + t.give_up),
           resend = false, reason = NULL, deferred_since = NULL
      FROM turn t
     WHERE d.call_id = t.call_id AND t.place <= t.slots
    RETURNING d.call_id, d.leaf, d.key, d.ordering_key, d.tries, d.attempts,
              d.in_doubt_since IS NOT NULL AS in_doubt,
              extract(epoch FROM clock_timestamp() - coalesce(d.due_at, d.enqueued_at))::float8 AS waited
)
SELECT t.call_id, t.leaf, t.key, t.ordering_key, t.tries, t.attempts, t.in_doubt, t.waited,
       (SELECT count(*) FROM put_off) AS put_off
  FROM taken t
 UNION ALL
-- One row without a call where nothing was taken, so that the caller learns what was put off.
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, (SELECT count(*) FROM put_off)
 WHERE NOT EXISTS (SELECT FROM taken)
