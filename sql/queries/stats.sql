-- What the tables hold, for the gauges: by leaf and state, and the oldest of each.
-- Caller:      store/stats.rs, at each scrape
-- Index:       dispatch: live calls only, so its cost follows the work in hand and not the history
-- Locks:       none
-- Repeatable:  yes
SELECT d.leaf, d.state, count(*) AS calls,
       coalesce(max(extract(epoch FROM clock_timestamp() - coalesce(d.due_at, d.enqueued_at)))
           FILTER (WHERE d.state = 'pending' AND d.held IS NULL AND coalesce(d.due_at, d.enqueued_at) <= clock_timestamp()),
           0)::float8 AS oldest_due,
       coalesce(max(extract(epoch FROM clock_timestamp() - d.in_doubt_since)) FILTER (WHERE d.state = 'in_doubt'), 0)::float8
           AS oldest_doubt,
       count(*) FILTER (WHERE d.state = 'parked') AS parked,
       count(*) FILTER (WHERE d.state = 'dispatching'
                          AND NOT EXISTS (SELECT FROM leafhopper.instance i
                                           WHERE i.id = d.instance AND i.heartbeat_at + i.lease > now())) AS lease_over,
       count(*) FILTER (WHERE d.held IN ('order', 'arrived')
                          AND EXISTS (SELECT FROM leafhopper.order_hold h
                                       WHERE h.leaf = d.leaf AND h.ordering_key = d.ordering_key)) AS order_held,
       count(*) FILTER (WHERE d.state = 'in_doubt' AND d.in_doubt_since < now() - s.value) AS long_in_doubt,
       count(*) FILTER (WHERE d.state = 'pending' AND d.held IS NULL
                          AND (greatest(d.due_at, d.enqueued_at) < now() - s.value
                               OR (d.tries > 0 AND d.first_claimed_at < now() - s.value))) AS long_due
  FROM leafhopper.dispatch d
 CROSS JOIN (SELECT value::interval AS value FROM leafhopper.setting WHERE name = 'stuck_after') s
 GROUP BY d.leaf, d.state
