-- The claimed calls' requests, and what the leaf already confirmed for their keys; also whether that is about to be undone
-- with the batch that owns it: by a compensation of its own, or by its leaf's, if that has one.
-- Caller:      store/claim.rs, in the claim's transaction but as a statement of its own: only one that
--              starts after the rows are locked sees what was confirmed meanwhile
-- Index:       outbox_pkey, result_pkey, batch_pkey, finished_fails_batch, outbox_compensation
-- Locks:       none
-- Repeatable:  yes
-- $1 int8[] call ids
SELECT o.id, o.key, o.method, o.path, o.headers::text, o.body::text, o.body_raw, o.content_type, o.credential,
       o.max_attempts, extract(epoch FROM o.timeout)::float8 AS timeout,
       coalesce(u.probe, o.probe) IS NOT NULL AS has_probe, o.undoes IS NOT NULL AS compensates,
       o.batch_id IS NOT NULL AS in_batch, o.meta ->> 'traceparent' AS traceparent,
       r.generation, r.undone, r.request_hash, r.being_undone,
       -- Since when no request that made or undid the generation before can arrive; negative where that is ahead.
       CASE WHEN r.undone THEN extract(epoch FROM clock_timestamp() - greatest(r.alive_until, (
           SELECT c.alive_until FROM leafhopper.result c
            WHERE c.leaf = o.leaf AND c.key = o.key || ':undo:' || r.generation
            ORDER BY c.generation DESC LIMIT 1)))::float8 END AS since_alive
  FROM unnest($1::int8[]) AS c (id)
  JOIN leafhopper.outbox o ON o.id = c.id
  -- A compensation is asked about by the probe of what it undoes.
  LEFT JOIN leafhopper.outbox u ON u.id = o.undoes
  LEFT JOIN LATERAL (
      SELECT r.generation, r.undone_at IS NOT NULL AS undone, r.request_hash, r.alive_until,
             (SELECT CASE WHEN w.compensate IS NOT NULL THEN 'by_row'
                          WHEN w.method NOT IN ('GET', 'HEAD') THEN 'by_leaf' END
                FROM leafhopper.outbox w
               WHERE r.undone_at IS NULL AND r.batch_id IS NOT NULL AND w.id = r.call_id AND w.id <> o.id AND w.run_when = 'ready'
                 AND coalesce((SELECT b.state IN ('cancelling', 'compensating') FROM leafhopper.batch b
                                WHERE b.id = r.batch_id AND b.state NOT IN ('open', 'closing')),
                              EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = r.batch_id AND f.fails_batch))
                 AND NOT EXISTS (SELECT FROM leafhopper.outbox c JOIN leafhopper.finished f ON f.call_id = c.id
                                  WHERE c.leaf = r.leaf AND c.key = r.key || ':undo:' || r.generation
                                    AND c.undoes IS NOT NULL AND f.reason = 'waived')) AS being_undone
        FROM leafhopper.result r
       WHERE r.leaf = o.leaf AND r.key = o.key
       ORDER BY r.generation DESC LIMIT 1) r ON true
