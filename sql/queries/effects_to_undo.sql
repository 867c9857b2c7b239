-- What the teardown of each batch has to do next: of a batch that undoes the newest first, the newest effect that
-- stands; else all that nobody has begun to undo.
-- Caller:      store/teardown.rs, from engine/teardown.rs, after lock_batches.sql in the same transaction
-- Index:       batch_pkey, result_batch, outbox_pkey, outbox_compensation, dispatch_pkey, finished_pkey, dispatch_batch
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid[] batches that are locked   $2 text[] leaves with a compensation   $3 text[] known leaves
-- $4 int4 of one batch at most so many
-- Gives for each batch that is compensating at least one row; without a call where nothing is to be done now, and then
-- `done` says whether nothing is left. A request that changes nothing has no effect that the leaf's compensation could undo.
-- Whose undoing has begun is undone, or waived, whatever is configured by now.
SELECT b.id AS batch, e.call_id, e.leaf, e.key, e.generation, e.weak, e.leaf_unknown, e.compensate, e.seen, e.result,
       e.alive_for, e.settle,
       e.compensation, e.compensation_held, e.compensation_sent,
       -- One that undoes the newest first does one thing at a time.
       b.undo_order = 'any' OR NOT EXISTS (
           SELECT FROM leafhopper.dispatch d
            WHERE d.batch_id = b.id AND d.run_when = 'batch_failed' AND d.undoes IS NOT NULL) AS in_turn,
       NOT EXISTS (
           SELECT FROM leafhopper.result r JOIN leafhopper.outbox o ON o.id = r.call_id
            WHERE r.batch_id = b.id AND r.undone_at IS NULL AND r.key !~ ':undo:[0-9]+$' AND o.run_when = 'ready'
              AND (o.compensate IS NOT NULL
                   OR o.method NOT IN ('GET', 'HEAD') AND (r.leaf = ANY ($2::text[]) OR r.leaf <> ALL ($3::text[]))
                   OR EXISTS (SELECT FROM leafhopper.outbox c
                               WHERE c.leaf = r.leaf AND c.key = r.key || ':undo:' || r.generation
                                 AND c.undoes IS NOT NULL))
              AND NOT EXISTS (SELECT FROM leafhopper.outbox c JOIN leafhopper.finished f ON f.call_id = c.id
                               WHERE c.leaf = r.leaf AND c.key = r.key || ':undo:' || r.generation
                                 AND c.undoes IS NOT NULL AND f.reason = 'waived')) AS done
  FROM leafhopper.batch b
  LEFT JOIN LATERAL (
    SELECT r.call_id, r.leaf, r.key, r.generation, r.weak, o.compensate::text AS compensate,
           o.compensate IS NULL AND r.leaf <> ALL ($3::text[]) AS leaf_unknown,
           -- Another request of the call can arrive until then, and for as long as the leaf needs to settle.
           extract(epoch FROM r.alive_until - clock_timestamp())::float8 AS alive_for, o.probe ->> 'settle' AS settle,
           jsonb_build_object('id', o.id, 'key', o.key, 'method', o.method, 'path', o.path, 'body', o.body,
                              'batch_id', o.batch_id, 'ordering_key', o.ordering_key, 'meta', o.meta)::text AS seen,
           jsonb_build_object('status', r.status, 'headers', r.headers, 'body', r.body, 'generation', r.generation,
                              'seq', r.seq)::text AS result,
           c.id AS compensation, d.held = 'batch' AS compensation_held, d.tries > 0 AS compensation_sent
      FROM leafhopper.result r
      JOIN leafhopper.outbox o ON o.id = r.call_id
      LEFT JOIN leafhopper.outbox c ON c.leaf = r.leaf AND c.key = r.key || ':undo:' || r.generation AND c.undoes IS NOT NULL
      LEFT JOIN leafhopper.dispatch d ON d.call_id = c.id
      LEFT JOIN leafhopper.finished f ON f.call_id = c.id
     WHERE r.batch_id = b.id AND r.undone_at IS NULL AND r.key !~ ':undo:[0-9]+$' AND o.run_when = 'ready'
       AND (o.compensate IS NOT NULL
            OR o.method NOT IN ('GET', 'HEAD') AND (r.leaf = ANY ($2::text[]) OR r.leaf <> ALL ($3::text[]))
            OR c.id IS NOT NULL)
       AND f.reason IS DISTINCT FROM 'waived'
       -- Where one holds no other, those that only another instance can undo are in nobody's way.
       AND (b.undo_order = 'newest_first'
            OR (c.id IS NULL OR d.held = 'batch') AND (o.compensate IS NOT NULL OR r.leaf = ANY ($3::text[])))
     ORDER BY r.seq DESC
     LIMIT CASE b.undo_order WHEN 'newest_first' THEN 1 ELSE $4 END) e ON true
 WHERE b.id = ANY ($1::uuid[]) AND b.state = 'compensating'
