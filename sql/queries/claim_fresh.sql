-- Claim calls that were never tried, of several leaves for one instance: claim.sql without all that is seldom there.
-- Caller:      store/claim.rs, from engine/dispatcher.rs; prior.sql follows in the same transaction
-- Index:       dispatch_fresh; dispatch_one_at_a_time decides
-- Locks:       the claimed rows; skips rows that another transaction holds
-- Repeatable:  yes; a claim whose reply was lost is given back by its round
-- What can't be taken just like that (a key that is busy, a credential that may not be used, a suspect) is left where it
-- is, for claim.sql to move it out of the way.
-- $1 uuid instance   $2 int8 round   $3 text[] leaves   and for each leaf:
-- $4 int4[] slots (at most so many calls)   $5 float8[] timeout, s   $6 float8[] give_up_after, s
-- $7 text[] JSON arrays of the credentials that may be used ("" is the leaf's own auth)
-- Where it looks, for each leaf arrays of spans: behind (priority, call id), below a priority:
-- $8 text[] int4[] priority   $9 text[] int8[] call id   $10 text[] int4[] priority
WITH want AS MATERIALIZED (
    SELECT w.leaf, w.slots, w.credentials::jsonb AS credentials,
           make_interval(secs => w.timeout) AS timeout,
           make_interval(secs => w.give_up) AS give_up,
           w.behind_priority::int4[] AS behind_priority, w.behind_call::int8[] AS behind_call, w.below::int4[] AS below
      FROM unnest($3::text[], $4::int4[], $5::float8[], $6::float8[], $7::text[], $8::text[], $9::text[], $10::text[])
        AS w (leaf, slots, timeout, give_up, credentials, behind_priority, behind_call, below)
     -- As in claim.sql.
     WHERE EXISTS (SELECT FROM leafhopper.instance i WHERE i.id = $1 AND i.heartbeat_at + i.lease > clock_timestamp())
       AND EXISTS (SELECT FROM leafhopper.origin g
                    WHERE g.changed_at IS NULL
                      AND g.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int4)
       AND NOT EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = w.leaf AND c.paused)
),
fresh AS MATERIALIZED (
    SELECT c.*, w.timeout, w.give_up FROM want w
     CROSS JOIN LATERAL (
        SELECT s.*
          FROM unnest(w.behind_priority, w.behind_call, w.below) AS span (behind_priority, behind_call, below)
         CROSS JOIN LATERAL (
            SELECT d.call_id, d.leaf, d.key, d.priority, clock_timestamp() AS found_at
              FROM leafhopper.dispatch d
             WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
               AND (d.priority, d.call_id) > (span.behind_priority, span.behind_call) AND d.priority < span.below
               AND NOT d.suspect AND w.credentials ? coalesce(d.credential, '')
               AND (d.deadline IS NULL OR d.deadline > clock_timestamp())
               AND (d.batch_id IS NULL OR d.run_when <> 'ready'
                    OR (NOT EXISTS (SELECT FROM leafhopper.batch b WHERE b.id = d.batch_id AND b.state <> 'open' OFFSET 0)
                        AND NOT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = d.batch_id AND f.fails_batch OFFSET 0)))
             ORDER BY d.priority, d.call_id
             LIMIT w.slots
               FOR UPDATE OF d SKIP LOCKED) s
         LIMIT w.slots) c
),
-- One for each key. (What is true of each number tells the planner that they are few, and OFFSET 0 keeps it a look-up,
-- as in claim.sql.)
first AS MATERIALIZED (
    SELECT min(f.call_id) AS call_id, min(f.timeout) AS timeout, min(f.give_up) AS give_up
      FROM fresh f
     WHERE f.call_id % 1 = 0
       AND NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.leaf = f.leaf AND x.key = f.key AND x.state IN ('dispatching', 'in_doubt', 'parked')
                        OFFSET 0)
     GROUP BY f.leaf, f.key
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
      FROM first t
     WHERE d.call_id = t.call_id
    RETURNING d.call_id, d.leaf, d.key, d.ordering_key, d.tries, d.attempts,
              d.in_doubt_since IS NOT NULL AS in_doubt,
              date_part('epoch', clock_timestamp() - d.enqueued_at) AS waited, d.priority
),
-- For the statement that follows (PostgreSQL, chapter 9.27.1): it ends with the transaction.
told AS (
    SELECT set_config('leafhopper.claimed', coalesce(array_agg(call_id), '{}')::text, true) FROM taken
)
SELECT t.call_id, t.leaf, t.key, t.ordering_key, t.tries, t.attempts, t.in_doubt, t.waited, 1 AS kind, t.priority,
       NULL::float8 AS due, 0::int8 AS put_off, false AS due_left,
       (SELECT date_part('epoch', max(f.found_at) - statement_timestamp()) FROM fresh f) AS looked_for
  FROM told LEFT JOIN taken t ON true
