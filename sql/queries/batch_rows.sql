-- The named batches as lists show them: how many calls are in which state, how many effects stand, and why it waits.
-- One that has neither a row nor a call is left out.
-- Caller:      store/operator/batches.rs
-- Index:       batch_pkey, outbox_batch, dispatch_pkey, finished_pkey, result_pkey, result_batch
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid[] batches
SELECT s.id, s.name, s.state, s.reason, s.stuck, s.standing, s.calls::text AS calls_json,
       extract(epoch FROM now() - s.created_at)::float8 AS age,
       extract(epoch FROM now() - s.finished_at)::float8 AS finished_ago,
       (to_jsonb(s) - 'place')::text AS json
  FROM (SELECT u.id, b.name, coalesce(b.state, 'open') AS state, leafhopper.batch_reason(b) AS reason,
               coalesce(leafhopper.batch_waits_since(b)
                        < now() - (SELECT value::interval FROM leafhopper.setting WHERE name = 'stuck_after'), false) AS stuck,
               c.calls,
               (SELECT count(*) FROM leafhopper.effect e WHERE e.batch_id = u.id) AS standing,
               coalesce(b.allow_failures, false) AS allow_failures, coalesce(b.sealed, true) AS sealed,
               coalesce(b.undo_order, 'newest_first') AS undo_order, coalesce(b.created_at, c.first_at) AS created_at,
               b.changed_at, b.idle_since, b.last_phase_at, b.finished_at, u.place
          FROM unnest($1::uuid[]) WITH ORDINALITY AS u (id, place)
          LEFT JOIN leafhopper.batch b ON b.id = u.id
         CROSS JOIN LATERAL (
              SELECT coalesce(jsonb_object_agg(n.state, n.number), '{}') AS calls, min(n.first_at) AS first_at
                FROM (SELECT coalesce(d.state, f.state,
                                      CASE WHEN EXISTS (SELECT FROM leafhopper.result r
                                                         WHERE r.leaf = o.leaf AND r.key = o.key AND r.call_id = o.id)
                                           THEN 'confirmed' ELSE 'pending' END) AS state,
                             count(*) AS number, min(o.created_at) AS first_at
                        FROM leafhopper.outbox o
                        LEFT JOIN leafhopper.dispatch d ON d.call_id = o.id
                        LEFT JOIN leafhopper.finished f ON f.call_id = o.id
                       WHERE o.batch_id = u.id GROUP BY 1) n) c
         WHERE b.id IS NOT NULL OR c.calls <> '{}') s
 ORDER BY s.place
