-- What the teardown of each batch has to do next: of a batch that undoes the newest first, the newest effect that
-- stands; else all that nobody has begun to undo.
-- Caller:      store/teardown.rs, from engine/teardown.rs, after lock_batches.sql in the same transaction
-- Index:       batch_pkey, result_batch, result_pkey, outbox_pkey, outbox_compensation, dispatch_pkey, finished_pkey, dispatch_batch
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid[] batches that are locked   $2 text[] leaves with a compensation   $3 text[] known leaves
-- $4 int4 of one batch at most so many
-- Gives for each batch that is compensating at least one row; without a call where nothing is to be done now, and then
-- `done` says whether nothing is left.
WITH to_undo AS NOT MATERIALIZED (
    SELECT e.*, e.compensate IS NULL AND e.leaf <> ALL ($3::text[]) AS leaf_unknown
      FROM leafhopper.effect e
     WHERE e.undone_by = 'row' OR e.undone_by = 'leaf' AND (e.leaf = ANY ($2::text[]) OR e.leaf <> ALL ($3::text[]))
)
SELECT b.id AS batch, e.call_id, e.leaf, e.generation, e.weak, e.leaf_unknown, e.compensate::text AS compensate,
       e.compensation, e.compensation_held, e.compensation_sent,
       -- Another request of the call can arrive until then, and for as long as the leaf needs to settle.
       extract(epoch FROM r.alive_until - clock_timestamp())::float8 AS alive_for, o.probe ->> 'settle' AS settle,
       -- What templates see.
       jsonb_build_object('id', o.id, 'key', o.key, 'method', o.method, 'path', o.path, 'body', o.body,
                          'batch_id', o.batch_id, 'ordering_key', o.ordering_key, 'meta', o.meta)::text AS seen,
       jsonb_build_object('status', r.status, 'headers', r.headers, 'body', r.body, 'generation', r.generation,
                          'seq', r.seq)::text AS result,
       -- One that undoes the newest first does one thing at a time. What waits to be made anew, or for its turn, is none: an
       -- effect that has come meanwhile goes before it.
       b.undo_order = 'any' OR NOT EXISTS (
           SELECT FROM leafhopper.dispatch d
            WHERE d.batch_id = b.id AND d.run_when = 'batch_failed' AND d.undoes IS NOT NULL
              AND d.held IS DISTINCT FROM 'batch') AS in_turn,
       NOT EXISTS (SELECT FROM to_undo t WHERE t.batch_id = b.id)
       -- Somebody may have said that it is undone while the request that undoes it is under way.
       AND NOT EXISTS (
           SELECT FROM leafhopper.dispatch d
            WHERE d.batch_id = b.id AND d.undoes IS NOT NULL AND d.state IN ('dispatching', 'in_doubt')) AS done
  FROM leafhopper.batch b
  LEFT JOIN LATERAL (
      SELECT t.*, d.held = 'batch' AS compensation_held, d.tries > 0 AS compensation_sent
        FROM to_undo t LEFT JOIN leafhopper.dispatch d ON d.call_id = t.compensation
       WHERE t.batch_id = b.id
         -- Where one holds no other, those that only another instance can undo are in nobody's way.
         AND (b.undo_order = 'newest_first' OR NOT t.leaf_unknown AND (t.compensation IS NULL OR d.held = 'batch'))
       ORDER BY t.seq DESC
       LIMIT CASE b.undo_order WHEN 'newest_first' THEN 1 ELSE $4 END) e ON true
  LEFT JOIN leafhopper.result r ON r.leaf = e.leaf AND r.key = e.key AND r.generation = e.generation
  LEFT JOIN leafhopper.outbox o ON o.id = e.call_id
 WHERE b.id = ANY ($1::uuid[]) AND b.state = 'compensating'
