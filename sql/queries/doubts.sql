-- Calls in doubt of known leaves that are due and whose way out is not decided, or no longer open.
-- Caller:      store/doubt.rs, from engine/prober.rs
-- Index:       dispatch_doubt
-- Locks:       none; the decision names what it saw
-- Repeatable:  yes
-- $1 text[] leaves   $2 int4 at most so many of each   $3 float8[] timeout, s   $4 float8[] window, s, or NULL
-- $5 int4 what is stored in more bytes is large, or has eight times as many
-- $6 text[] JSON arrays of the credentials that are kept back: what has one of them is looked at beside the others, as most of
--    it can only wait
SELECT d.call_id, d.leaf, o.method, d.tries, d.attempts, d.crashes, o.max_attempts,
       coalesce(u.probe, o.probe) IS NOT NULL AS has_probe, o.compensate IS NOT NULL AS compensated,
       greatest(pg_column_size(o.body), pg_column_size(o.body_raw),
                pg_column_size(u.body), pg_column_size(u.body_raw)) > $5
       OR greatest(octet_length(o.body_raw), octet_length(u.body_raw),
                   CASE WHEN pg_column_size(o.body) <= $5 THEN octet_length(o.body::text) END,
                   CASE WHEN pg_column_size(u.body) <= $5 THEN octet_length(u.body::text) END) > $5 * 8 AS large,
       d.exists_said, d.probes, d.credential, d.batch_id, d.undoes IS NOT NULL AS compensates,
       o.meta ->> 'traceparent' AS traceparent, o.meta ->> 'tracestate' AS tracestate,
       EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = d.leaf AND c.paused) AS paused,
       greatest(extract(epoch FROM clock_timestamp() - d.in_doubt_since), 0)::float8 AS in_doubt_for,
       extract(epoch FROM clock_timestamp() - d.alive_until)::float8 AS since_alive,
       extract(epoch FROM d.alive_until)::float8 AS alive_until,
       coalesce(d.deadline <= clock_timestamp(), false) AS deadline_passed,
       d.cancel_requested IS NOT NULL AS cancelled,
       d.batch_id IS NOT NULL AND d.run_when = 'ready' AND NOT leafhopper.batch_is_open(d.batch_id) AS batch_closed,
       -- Another attempt would end while the leaf still remembers the key.
       coalesce(d.first_claimed_at + make_interval(secs => w.time_window)
                >= clock_timestamp() + coalesce(d.timeout, make_interval(secs => w.timeout)), true) AS within_window
  FROM unnest($1::text[], $3::float8[], $4::float8[], $6::text[]) AS w (leaf, timeout, time_window, blocked)
 CROSS JOIN (VALUES (false), (true)) AS k (kept_back)
 CROSS JOIN LATERAL (
    SELECT x.* FROM leafhopper.dispatch x
     WHERE x.leaf = w.leaf AND x.state = 'in_doubt' AND x.due_at <= statement_timestamp()
       AND (w.blocked <> '[]' OR NOT k.kept_back)
       AND (w.blocked::jsonb ? coalesce(x.credential, '')) = k.kept_back
       AND (NOT x.resend
            OR x.deadline <= clock_timestamp()
            OR x.first_claimed_at + make_interval(secs => w.time_window)
               < clock_timestamp() + coalesce(x.timeout, make_interval(secs => w.timeout))
            OR (x.batch_id IS NOT NULL AND x.run_when = 'ready' AND NOT x.resend_asks
                AND NOT leafhopper.batch_is_open(x.batch_id)))
     ORDER BY x.due_at LIMIT $2) d
  JOIN leafhopper.outbox o ON o.id = d.call_id
  LEFT JOIN leafhopper.outbox u ON u.id = d.undoes
 WHERE NOT EXISTS (SELECT FROM leafhopper.origin g WHERE g.changed_at IS NOT NULL)
