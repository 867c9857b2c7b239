-- A batch with its calls counted by state, and those that ended without a confirmation.
-- Caller:      store/operator/show.rs
-- Index:       batch_pkey, outbox_batch, dispatch_pkey, finished_pkey, result_pkey, finished_batch
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid batch   $2 int8 of the ended ones, the first so many
SELECT (coalesce((SELECT to_jsonb(b) FROM leafhopper.batch b WHERE b.id = $1),
                 jsonb_build_object('id', $1, 'state', 'open', 'allow_failures', false, 'sealed', true))
        || jsonb_build_object(
               'calls', (SELECT coalesce(jsonb_object_agg(s.state, s.number), '{}') FROM (
                   SELECT coalesce(d.state, f.state,
                                   CASE WHEN EXISTS (SELECT FROM leafhopper.result r
                                                      WHERE r.leaf = o.leaf AND r.key = o.key AND r.call_id = o.id)
                                        THEN 'confirmed' ELSE 'pending' END) AS state, count(*) AS number
                     FROM leafhopper.outbox o
                     LEFT JOIN leafhopper.dispatch d ON d.call_id = o.id
                     LEFT JOIN leafhopper.finished f ON f.call_id = o.id
                    WHERE o.batch_id = $1 GROUP BY 1) s),
               'ended', (SELECT coalesce(jsonb_agg(e ORDER BY e.finished_at, e.id), '[]') FROM (
                   SELECT f.call_id AS id, f.state, f.reason, f.finished_at FROM leafhopper.finished f
                    WHERE f.batch_id = $1 AND f.state <> 'confirmed'
                    ORDER BY f.finished_at, f.call_id LIMIT $2) e)))::text AS json
