-- Calls of instances that are gone become calls in doubt: nobody knows whether they were sent.
-- Caller:      store/sweep.rs, from engine/reclaimer.rs
-- Index:       dispatch_one_at_a_time (its predicate covers the state)
-- Locks:       the reclaimed rows; skips rows that another transaction holds
-- Repeatable:  yes
-- $1 uuid[] instances whose lease is over for the database's clock and for this observer
-- $2 int4 at most so many
WITH gone AS MATERIALIZED (
    SELECT d.call_id, d.instance, d.round, i.name, i.heartbeat_at + i.lease AS lease_end
      FROM leafhopper.dispatch d
      LEFT JOIN leafhopper.instance i ON i.id = d.instance
     WHERE d.state = 'dispatching'
       AND (i.id IS NULL OR (i.id = ANY ($1::uuid[]) AND i.heartbeat_at + i.lease <= clock_timestamp()))
     ORDER BY d.call_id
     LIMIT $2
),
-- The very claim that was seen. Where a row has changed meanwhile, PostgreSQL tests it again with the instance that
-- the snapshot joined to it: a newer claim matches no such instance, and would look like one whose instance is gone.
lost AS MATERIALIZED (
    SELECT d.call_id, d.tries, d.claimed_at, g.instance, g.name, g.lease_end
      FROM gone g JOIN leafhopper.dispatch d USING (call_id)
     WHERE d.state = 'dispatching' AND d.instance = g.instance AND d.round = g.round
     ORDER BY d.call_id
       FOR UPDATE OF d SKIP LOCKED
),
moved AS (
    -- It is looked at when the attempt can last have been alive: the lease's end or the time limit of the
    -- request, whichever is later. A request that killed its process counts as an attempt.
    UPDATE leafhopper.dispatch d
       SET state = 'in_doubt',
           in_doubt_since = coalesce(d.in_doubt_since, clock_timestamp()),
           alive_until = greatest(d.alive_until, l.lease_end),
           due_at = greatest(d.alive_until, l.lease_end, clock_timestamp()),
           probes = 0, exists_said = false,
           resend = false,
           attempts = d.attempts + 1,
           crashes = d.crashes + 1,
           last_error = 'the instance vanished while the request may have been under way'
      FROM lost l
     WHERE d.call_id = l.call_id
    RETURNING d.call_id, d.leaf
),
history AS (
    INSERT INTO leafhopper.attempt (call_id, attempt, started_at, class, error, instance)
    SELECT l.call_id, l.tries, l.claimed_at, 'in_doubt',
           'the instance vanished while the request may have been under way', coalesce(l.name, l.instance::text)
      FROM lost l
)
SELECT m.call_id, m.leaf FROM moved m
