-- What the tables hold, for the gauges and the page: live calls by leaf, state and reason, how many of them are stuck,
-- and the oldest of each. The reasons are the view's, told of groups of calls and not of each: a test compares them.
-- Caller:      store/stats.rs, from surface/tables.rs: at a scrape or when a page is read, for at most a twentieth of an
--              instance's time
-- Index:       batch_live, finished_fails_batch, result_batch, order_hold_pkey, dispatch_one_head; of dispatch it reads all: what
--              is live, so the cost follows the work in hand and not the history
-- Locks:       none
-- Repeatable:  yes
WITH alive AS MATERIALIZED (
    SELECT i.id, i.leaves FROM leafhopper.instance i WHERE i.heartbeat_at + i.lease > now()
), stuck AS MATERIALIZED (
    SELECT now() - value::interval AS since FROM leafhopper.setting WHERE name = 'stuck_after'
), cancelled AS MATERIALIZED (
    SELECT b.id FROM leafhopper.batch b WHERE b.state IN ('cancelling', 'compensating')
     UNION
    SELECT f.batch_id FROM leafhopper.finished f WHERE f.fails_batch
), undone AS MATERIALIZED (
    -- What stands, and is about to be undone with the batch that owns it.
    SELECT r.leaf, r.key FROM leafhopper.batch b JOIN leafhopper.result r ON r.batch_id = b.id
     WHERE b.state IN ('cancelling', 'compensating') AND r.undone_at IS NULL AND r.key !~ ':undo:[0-9]+$'
), live AS MATERIALIZED (
    -- What a backlog mostly consists of, apart from the rest: the planner expects few groups of these, and hashes them.
    SELECT d.leaf, d.state, NULL::text AS reason, NULL::text AS held, NULL::text AS credential, '' AS kind, false AS later,
           count(*) AS calls, min(d.enqueued_at) AS due_since, NULL::timestamptz AS doubt_since,
           count(*) FILTER (WHERE d.enqueued_at < (SELECT s.since FROM stuck s)) AS long,
           min(d.call_id) AS first_call,
           min(d.call_id) FILTER (WHERE d.enqueued_at < (SELECT s.since FROM stuck s)) AS first_long
      FROM leafhopper.dispatch d
     WHERE d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
       AND d.tries = 0 AND d.credential IS NULL AND d.batch_id IS NULL
     GROUP BY d.leaf, d.state
     UNION ALL
    SELECT d.leaf, d.state, d.reason, d.held, d.credential,
           CASE WHEN d.state = 'pending' AND d.run_when = 'ready' AND d.batch_id IN (SELECT c.id FROM cancelled c)
                    THEN 'batch_cancelled'
                WHEN d.held IN ('order', 'arrived')
                     AND EXISTS (SELECT FROM leafhopper.order_hold h
                                  WHERE h.leaf = d.leaf AND h.ordering_key = d.ordering_key)
                     AND NOT EXISTS (SELECT FROM leafhopper.dispatch x
                                      WHERE x.leaf = d.leaf AND x.ordering_key = d.ordering_key
                                        AND (x.held IS NULL OR x.held = 'key')) THEN 'head_ended'
                WHEN d.state = 'dispatching' AND d.instance NOT IN (SELECT a.id FROM alive a) THEN 'lease_over'
                WHEN d.state <> 'pending' OR d.held IN ('order', 'arrived') THEN ''
                WHEN d.tries > 0 AND d.due_at > now() AND d.held IS NULL AND d.undoes IS NULL
                     AND (d.leaf, d.key) IN (SELECT u.leaf, u.key FROM undone u) THEN 'waits_for_key'
                WHEN d.tries > 0 AND d.due_at > now() THEN 'retry'
                ELSE '' END AS kind,
           coalesce(d.due_at, d.enqueued_at) > now() AS later,
           count(*) AS calls,
           min(coalesce(d.due_at, d.enqueued_at)) AS due_since,
           min(d.in_doubt_since) AS doubt_since,
           count(*) FILTER (WHERE w.long) AS long,
           min(d.call_id) AS first_call,
           min(d.call_id) FILTER (WHERE w.long) AS first_long
      FROM leafhopper.dispatch d
     CROSS JOIN LATERAL (
          SELECT CASE d.state
                     WHEN 'in_doubt' THEN d.in_doubt_since < (SELECT s.since FROM stuck s)
                     WHEN 'pending' THEN greatest(d.due_at, d.enqueued_at) < (SELECT s.since FROM stuck s)
                                      OR (d.tries > 0 AND d.first_claimed_at < (SELECT s.since FROM stuck s))
                                      OR coalesce(d.deferred_since < (SELECT s.since FROM stuck s), false) END AS long) w
     WHERE NOT (d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
                AND d.tries = 0 AND d.credential IS NULL AND d.batch_id IS NULL)
     GROUP BY 1, 2, 3, 4, 5, 6, 7
), said AS (
    SELECT l.*, k.known,
           CASE
               WHEN l.state <> 'pending' THEN l.reason
               WHEN EXISTS (SELECT FROM leafhopper.origin WHERE changed_at IS NOT NULL) THEN 'database_changed'
               WHEN l.held = 'batch' THEN 'waits_for_batch'
               WHEN l.kind = 'batch_cancelled' THEN 'batch_cancelled'
               WHEN NOT k.known THEN 'leaf_unknown'
               WHEN EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = l.leaf AND c.paused) THEN 'leaf_paused'
               WHEN l.held = 'key' THEN 'waits_for_key'
               WHEN l.held IN ('order', 'arrived') THEN 'waits_for_order'
               WHEN l.credential IS NOT NULL AND NOT EXISTS (
                    SELECT FROM alive a WHERE a.leaves -> l.leaf -> 'credentials' ? l.credential) THEN 'credential_unknown'
               WHEN EXISTS (SELECT FROM alive a WHERE (a.leaves -> l.leaf ->> 'breaker_open')::boolean
                               OR a.leaves -> l.leaf -> 'blocked' ? coalesce(l.credential, '')) THEN 'breaker_open'
               WHEN l.kind <> '' THEN l.kind
               WHEN EXISTS (SELECT FROM alive a WHERE (a.leaves -> l.leaf ->> 'rate_limited')::boolean) THEN 'rate_limited'
           END AS why
      FROM live l CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM alive a WHERE a.leaves ? l.leaf) AS known) k
)
SELECT s.leaf, s.state, s.why AS reason, s.state = 'pending' AND s.held IS NULL AND s.later AS later,
       sum(s.calls)::int8 AS calls,
       sum(CASE
           WHEN s.state = 'parked' OR s.kind IN ('lease_over', 'head_ended') THEN s.calls
           WHEN s.state = 'pending' AND s.held IN ('batch', 'order', 'key') THEN 0
           WHEN s.state = 'pending' AND NOT s.known THEN s.calls
           ELSE s.long END)::int8 AS stuck,
       min(CASE
           WHEN s.state = 'parked' OR s.kind IN ('lease_over', 'head_ended') THEN s.first_call
           WHEN s.state = 'pending' AND s.held IN ('batch', 'order', 'key') THEN NULL
           WHEN s.state = 'pending' AND NOT s.known THEN s.first_call
           ELSE s.first_long END) AS first_stuck,
       coalesce(extract(epoch FROM now() - min(s.due_since)
           FILTER (WHERE s.state = 'pending' AND s.held IS NULL AND NOT s.later)), 0)::float8 AS oldest_due,
       coalesce(extract(epoch FROM now() - min(s.doubt_since) FILTER (WHERE s.state = 'in_doubt')), 0)::float8
           AS oldest_doubt
  FROM said s
 GROUP BY 1, 2, 3, 4
