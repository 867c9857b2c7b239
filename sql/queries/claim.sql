-- Claim due calls of several leaves for one instance: the durable mark "may have been sent".
-- Caller:      store/claim.rs, from engine/dispatcher.rs; prior.sql follows in the same transaction
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
-- Where it looks for fresh calls, for each leaf arrays of spans: behind (priority, call id), below a priority:
-- $12 text[] int4[] priority   $13 text[] int8[] call id   $14 text[] int4[] priority
-- $15 float8[] and for what has become due, from when on, s since 1970
WITH want AS MATERIALIZED (
    SELECT w.place, w.leaf, w.slots, w.aged, w.credentials::jsonb AS credentials,
           make_interval(secs => w.timeout) AS timeout,
           make_interval(secs => w.give_up) AS give_up,
           make_interval(secs => w.time_window) AS time_window,
           w.behind_priority::int4[] AS behind_priority, w.behind_call::int8[] AS behind_call, w.below::int4[] AS below,
           to_timestamp(w.due_from) AS due_from
      FROM unnest($3::text[], $4::int4[], $5::float8[], $6::float8[], $7::float8[], $8::int4[], $9::text[],
                  $12::text[], $13::text[], $14::text[], $15::float8[])
        WITH ORDINALITY
        AS w (leaf, slots, timeout, give_up, time_window, aged, credentials, behind_priority, behind_call, below,
              due_from, place)
     -- An instance whose lease is over may not claim, nor may anyone in a database that is not the one it was.
     WHERE EXISTS (SELECT FROM leafhopper.instance i WHERE i.id = $1 AND i.heartbeat_at + i.lease > clock_timestamp())
       AND EXISTS (SELECT FROM leafhopper.origin g
                    WHERE g.changed_at IS NULL
                      -- After a failover nothing is claimed before its witnesses have looked (guardian).
                      AND g.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int4)
       AND NOT EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = w.leaf AND c.paused)
),
-- The oldest calls where a leaf has several priorities. Of each priority as many are locked as may be wanted: one that can't go,
-- as somebody holds it, must not keep all that are younger from their turn.
aged AS MATERIALIZED (
    SELECT f.*, 0 AS position, 0 AS kind
      FROM want w
     CROSS JOIN LATERAL (
        -- Which priorities there are, from where the claim begins: from one to the next, not call by call.
        WITH RECURSIVE p (priority, behind_call, below) AS (
            SELECT d.priority, CASE WHEN d.priority = span.behind_priority THEN span.behind_call ELSE 0 END, span.below
              FROM unnest(w.behind_priority, w.behind_call, w.below) AS span (behind_priority, behind_call, below)
             CROSS JOIN LATERAL (
                SELECT d.priority FROM leafhopper.dispatch d
                 WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
                   AND (d.priority, d.call_id) > (span.behind_priority, span.behind_call) AND d.priority < span.below
                 ORDER BY d.priority, d.call_id LIMIT 1) d
            UNION ALL
            SELECT d.priority, 0, p.below
              FROM p
             CROSS JOIN LATERAL (
                SELECT d.priority FROM leafhopper.dispatch d
                 WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
                   AND d.priority > p.priority AND d.priority < p.below
                 ORDER BY d.priority LIMIT 1) d
        )
        SELECT o.*
          FROM p
         CROSS JOIN LATERAL (
            SELECT d.call_id, d.leaf, d.key, d.credential, d.suspect, d.priority
              FROM leafhopper.dispatch d
             WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
               -- No equality: with one the planner would go through the calls of all leaves in the order of their ids.
               AND (d.priority, d.call_id) > (p.priority, p.behind_call) AND d.priority <= p.priority
               AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
               AND (d.batch_id IS NULL OR d.run_when <> 'ready'
                    OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open' OFFSET 0)
                        AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch OFFSET 0)))
             ORDER BY d.priority, d.call_id
             LIMIT w.aged
               FOR UPDATE OF d SKIP LOCKED) o
         WHERE (SELECT count(*) FROM p) > 1
         ORDER BY o.call_id LIMIT w.aged) f
     WHERE w.aged > 0
),
fresh AS MATERIALIZED (
    SELECT c.*, 1 AS kind FROM want w
     CROSS JOIN LATERAL (
        SELECT s.call_id, s.leaf, s.key, s.credential, s.suspect, s.priority, row_number() OVER () AS position
          FROM unnest(w.behind_priority, w.behind_call, w.below) AS span (behind_priority, behind_call, below)
         CROSS JOIN LATERAL (
            SELECT d.call_id, d.leaf, d.key, d.credential, d.suspect, d.priority
              FROM leafhopper.dispatch d
             WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
               AND (d.priority, d.call_id) > (span.behind_priority, span.behind_call) AND d.priority < span.below
               AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
               AND (d.batch_id IS NULL OR d.run_when <> 'ready'
                    OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open' OFFSET 0)
                        AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch OFFSET 0)))
             ORDER BY d.priority, d.call_id
             LIMIT w.slots + $11
               FOR UPDATE OF d SKIP LOCKED) s
         LIMIT w.slots + $11) c
),
timed AS MATERIALIZED (
    SELECT c.*, 2 AS kind FROM want w
     CROSS JOIN LATERAL (
        SELECT s.*, row_number() OVER () AS position
          FROM (SELECT d.call_id, d.leaf, d.key, d.credential, d.suspect, d.priority
                  FROM leafhopper.dispatch d
                 WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL
                   AND d.due_at >= w.due_from AND d.due_at <= statement_timestamp()
                   AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
                   AND (d.give_up_at IS NULL OR d.give_up_at > clock_timestamp())
                   AND (d.batch_id IS NULL OR d.run_when <> 'ready'
                        OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open' OFFSET 0)
                            AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch OFFSET 0)))
                 ORDER BY d.due_at
                 LIMIT w.slots + $11
                   FOR UPDATE OF d SKIP LOCKED) s) c
),
-- In doubt, and the prober said that the same request may be sent again.
doubt AS MATERIALIZED (
    SELECT c.*, 3 AS kind FROM want w
     CROSS JOIN LATERAL (
        SELECT s.*, row_number() OVER () AS position
          FROM (SELECT d.call_id, d.leaf, d.key, d.credential, d.suspect, d.priority
                  FROM leafhopper.dispatch d
                 WHERE d.leaf = w.leaf AND d.state = 'in_doubt' AND d.resend AND d.due_at <= statement_timestamp()
                   AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
                   AND (w.time_window IS NULL
                        OR d.first_claimed_at + w.time_window >= clock_timestamp() + coalesce(d.timeout, w.timeout))
                   AND (d.batch_id IS NULL OR d.run_when <> 'ready' OR d.resend_asks
                        OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open' OFFSET 0)
                            AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch OFFSET 0)))
                 ORDER BY d.due_at
                 LIMIT w.slots + $11
                   FOR UPDATE OF d SKIP LOCKED) s) c
),
-- The planner can't know the limits, and takes each part for a tenth of the table: it would fill its hash tables with
-- megabytes of nothing. What is true of each number tells it that they are few.
found AS MATERIALIZED (
    SELECT f.*
      FROM (SELECT call_id, leaf, key, credential, suspect, priority, position, kind FROM aged
             UNION ALL
            SELECT call_id, leaf, key, credential, suspect, priority, position, kind FROM fresh
             WHERE call_id NOT IN (SELECT a.call_id FROM aged a WHERE a.call_id % 1 = 0)
             UNION ALL
            SELECT call_id, leaf, key, credential, suspect, priority, position, kind FROM timed
             UNION ALL
            SELECT call_id, leaf, key, credential, suspect, priority, position, kind FROM doubt) f
     WHERE f.call_id % 1 = 0
),
-- When all of that was looked at, and locked; also where a part has found nothing.
looked AS MATERIALIZED (
    SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM found) all_of_it
),
-- Of several calls of one key the one in doubt, or else the lowest id.
several AS MATERIALIZED (
    SELECT f.leaf, f.key, coalesce(min(f.call_id) FILTER (WHERE f.kind = 3), min(f.call_id)) AS first
      FROM found f GROUP BY f.leaf, f.key HAVING count(*) > 1
),
-- OFFSET 0 keeps each EXISTS a look-up: the planner else reads an index of few calls from end to end, and while an old
-- snapshot is open there is an entry in it of each call that was ever there.
judged AS MATERIALIZED (
    SELECT f.*, w.place AS want, w.slots, w.timeout, w.give_up,
           CASE WHEN f.call_id <> s.first THEN 'behind'
                WHEN NOT w.credentials ? coalesce(f.credential, '') THEN 'defer'
                WHEN f.kind <> 3 AND EXISTS (
                     SELECT FROM leafhopper.dispatch x
                      WHERE x.leaf = f.leaf AND x.key = f.key AND x.state IN ('dispatching', 'in_doubt', 'parked')
                      OFFSET 0)
                THEN 'hold'
                -- In the lost part of another timeline it may have been executed: a doubt, now that it is its turn.
                WHEN f.suspect THEN 'doubt'
                ELSE 'take' END AS verdict
      -- The time comes before what is changed.
      FROM looked CROSS JOIN found f JOIN want w USING (leaf) LEFT JOIN several s USING (leaf, key)
),
-- Kinds take turns, so that neither a flood of retries nor one of new calls starves the other. Whose turn it is first is left to
-- chance: often there is one place.
turn AS MATERIALIZED (
    SELECT j.call_id, j.slots, j.timeout, j.give_up, j.priority, j.kind,
           row_number() OVER (PARTITION BY j.want ORDER BY j.kind <> 0, j.position, random()) AS place
      FROM judged j WHERE j.verdict = 'take'
),
stays AS MATERIALIZED (
    SELECT j.call_id, j.verdict FROM judged j WHERE j.verdict NOT IN ('take', 'behind')
     UNION ALL
    -- Others of a key that this claim takes, or that is held already.
    SELECT b.call_id, 'hold'
      FROM judged b JOIN several s USING (leaf, key) JOIN judged j ON j.call_id = s.first LEFT JOIN turn t ON t.call_id = s.first
     WHERE b.verdict = 'behind' AND (j.verdict IN ('hold', 'doubt') OR t.place <= t.slots)
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
              date_part('epoch', clock_timestamp() - coalesce(d.due_at, d.enqueued_at)) AS waited,
              t.kind, t.priority, date_part('epoch', d.due_at) AS due
),
-- For the statement that follows (PostgreSQL, chapter 9.27.1): it ends with the transaction.
told AS (
    SELECT set_config('leafhopper.claimed', coalesce(array_agg(call_id), '{}')::text, true) FROM taken
)
SELECT t.call_id, t.leaf, t.key, t.ordering_key, t.tries, t.attempts, t.in_doubt, t.waited, t.kind, t.priority, t.due,
       (SELECT count(*) FROM put_off) AS put_off,
       EXISTS (SELECT FROM turn l WHERE l.kind > 1 AND l.place > l.slots) AS due_left,
       (SELECT date_part('epoch', l.at - statement_timestamp()) FROM looked l) AS looked_for
  FROM told LEFT JOIN taken t ON true
