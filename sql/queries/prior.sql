-- The claimed calls' requests, and what the leaf already confirmed for their keys; where that is about to be undone with the
-- batch that owns it, also by what: its row, or its leaf, if that has a compensation.
-- Caller:      store/claim.rs, in the claim's transaction but as a statement of its own: only one that
--              starts after the rows are locked sees what was confirmed meanwhile
-- Index:       outbox_pkey, result_pkey, batch_pkey, finished_fails_batch, outbox_compensation
-- Locks:       none
-- Repeatable:  yes
-- $1 text[] leaves that replay what they have refused; the calls are those that the statement before it has named
-- A body that is larger as it is stored than $2 int4 bytes, or than eight times as many as it is sent, stays where it is until
-- it is its turn.
SELECT o.id, o.key, o.method, o.path, o.headers::text, o.credential,
       CASE WHEN o.body IS NULL THEN o.content_type ELSE 'application/json' END AS content_type,
       CASE WHEN NOT b.is_apart THEN b.text END AS body,
       CASE WHEN NOT b.is_apart THEN o.body_raw END AS body_raw,
       b.is_apart AS body_is_apart,
       o.max_attempts, date_part('epoch', o.timeout) AS timeout,
       -- Said no to this key so often: what comes after that goes with another header value.
       CASE WHEN o.leaf = ANY ($1::text[])
            THEN (SELECT count(*) FROM leafhopper.outbox x JOIN leafhopper.attempt a ON a.call_id = x.id
                   WHERE x.leaf = o.leaf AND x.key = o.key AND a.class = 'failed' AND a.status IS NOT NULL)
            ELSE 0 END AS refusals,
       coalesce(u.probe, o.probe) IS NOT NULL AS has_probe, o.undoes IS NOT NULL AS compensates,
       o.batch_id, o.meta ->> 'traceparent' AS traceparent, o.meta ->> 'tracestate' AS tracestate,
       r.generation, r.undone, r.request_hash, r.being_undone_by,
       -- Since when no request that made or undid the generation before can arrive; negative where that is ahead.
       CASE WHEN r.undone THEN date_part('epoch', clock_timestamp() - greatest(r.alive_until, (
           SELECT c.alive_until FROM leafhopper.result c
            WHERE c.leaf = o.leaf AND c.key = o.key || ':undo:' || r.generation
            ORDER BY c.generation DESC LIMIT 1))) END AS since_alive
  FROM unnest(current_setting('leafhopper.claimed', true)::int8[]) AS c (id)
  JOIN leafhopper.outbox o ON o.id = c.id
  -- OFFSET 0 keeps it from being made twice.
 CROSS JOIN LATERAL (
      SELECT t.text, coalesce(pg_column_size(o.body) > $2 OR octet_length(t.text) > $2 * 8,
                              pg_column_size(o.body_raw) > $2 OR octet_length(o.body_raw) > $2 * 8) AS is_apart
        FROM (SELECT CASE WHEN pg_column_size(o.body) <= $2 THEN o.body::text END AS text OFFSET 0) t OFFSET 0) b
  -- A compensation is asked about by the probe of what it undoes.
  LEFT JOIN leafhopper.outbox u ON u.id = o.undoes
  LEFT JOIN LATERAL (
      SELECT r.generation, r.undone_at IS NOT NULL AS undone, r.request_hash, r.alive_until,
             (SELECT e.undone_by FROM leafhopper.effect e
               WHERE e.leaf = r.leaf AND e.key = r.key AND e.generation = r.generation AND e.call_id <> o.id
                 AND coalesce((SELECT b.state IN ('cancelling', 'compensating')
                                      -- Confirmed after the teardown, which goes on for it; unless nobody knew how to, then.
                                      OR b.state = 'cancelled' AND r.confirmed_at >= b.changed_at - interval '10 s'
                                                               AND r.confirmed_at >= now() - interval '5 min'
                                 FROM leafhopper.batch b
                                WHERE b.id = e.batch_id AND b.state NOT IN ('open', 'closing')),
                              EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = e.batch_id AND f.fails_batch))
             ) AS being_undone_by
        FROM leafhopper.result r
       WHERE r.leaf = o.leaf AND r.key = o.key
       ORDER BY r.generation DESC LIMIT 1) r ON true
