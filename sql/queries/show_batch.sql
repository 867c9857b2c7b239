-- What is known of one batch beside its row: its calls by kind, what it waits for, and each effect that stands.
-- Caller:      store/operator/batches.rs
-- Index:       batch_pkey, outbox_batch, dispatch_pkey, finished_pkey, result_pkey, result_batch, outbox_compensation,
--              dispatch_batch, finished_batch, finished_fails_batch, operator_action_batch, operator_action_call
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid batch   $2 int8 of each kind, the first so many
WITH batch AS MATERIALIZED (
    SELECT coalesce((SELECT b.state FROM leafhopper.batch b WHERE b.id = $1), 'open') AS state
),
call AS MATERIALIZED (
    SELECT o.id,
           CASE WHEN o.undoes IS NOT NULL THEN 'compensation' WHEN o.run_when = 'ready' THEN 'ready' ELSE 'follow_up' END AS kind,
           coalesce(d.state, f.state, CASE WHEN r.call_id IS NOT NULL THEN 'confirmed' ELSE 'pending' END) AS state,
           d.call_id IS NOT NULL AS live, r.undone_at IS NOT NULL AS undone
      FROM leafhopper.outbox o
      LEFT JOIN leafhopper.dispatch d ON d.call_id = o.id
      LEFT JOIN leafhopper.finished f ON f.call_id = o.id
      LEFT JOIN leafhopper.result r ON r.leaf = o.leaf AND r.key = o.key AND r.call_id = o.id
     WHERE o.batch_id = $1
),
-- What has to end before the batch goes on.
waits AS MATERIALIZED (
    SELECT c.id, c.state
      FROM call c, batch b
     WHERE c.live AND CASE WHEN b.state IN ('open', 'closing', 'cancelling') THEN c.kind = 'ready'
                           WHEN b.state = 'compensating' THEN c.kind <> 'follow_up'
                           ELSE true END
),
effect AS MATERIALIZED (
    SELECT e.call_id, e.leaf, e.key, e.generation, e.seq, e.confirmed_at, e.weak, e.compensate IS NOT NULL AS own_compensate,
           EXISTS (SELECT FROM leafhopper.instance i
                    WHERE i.heartbeat_at + i.lease > now() AND i.leaves ? e.leaf) AS leaf_known,
           e.undone_by, EXISTS (SELECT FROM leafhopper.instance i
                                 WHERE i.heartbeat_at + i.lease > now()
                                   AND (i.leaves -> e.leaf ->> 'compensates')::boolean) AS leaf_compensates,
           e.compensation, coalesce(d.state, f.state) AS compensation_state,
           coalesce(d.reason, f.reason) AS compensation_reason, coalesce(d.last_error, f.last_error) AS compensation_error,
           coalesce(d.last_status, f.last_status) AS compensation_status,
           CASE WHEN f.reason = 'waived' THEN
               (SELECT a.reason FROM leafhopper.operator_action a
                 WHERE a.call_id = e.compensation AND a.action = 'waive' ORDER BY a.id DESC LIMIT 1)
           END AS waived_because
      FROM leafhopper.effect e
      LEFT JOIN leafhopper.dispatch d ON d.call_id = e.compensation
      LEFT JOIN leafhopper.finished f ON f.call_id = e.compensation
     WHERE e.batch_id = $1
     -- What waits for a person comes first.
     ORDER BY coalesce(d.state = 'parked' OR f.state = 'failed', false) DESC, e.seq DESC
     LIMIT $2
)
SELECT EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = $1 AND f.fails_batch) AS announced,
       (SELECT coalesce(jsonb_object_agg(k.kind, k.states), '{}') FROM (
           SELECT n.kind, jsonb_object_agg(n.state, n.number) AS states
             FROM (SELECT c.kind, c.state, count(*) AS number FROM call c GROUP BY 1, 2) n GROUP BY 1) k)::text AS kinds_json,
       (SELECT count(*) FROM call c WHERE c.undone) AS undone,
       (SELECT count(*) FROM call c WHERE c.kind = 'ready') AS ready_calls,
       (SELECT count(*) FROM call c WHERE c.kind = 'compensation') AS compensation_calls,
       (SELECT count(*) FROM call c WHERE c.kind = 'follow_up') AS follow_up_calls,
       (SELECT count(*) FROM waits) AS waiting_calls,
       ARRAY(SELECT c.id FROM call c WHERE c.kind = 'ready' ORDER BY c.id LIMIT $2) AS ready,
       ARRAY(SELECT c.id FROM call c WHERE c.kind = 'compensation' ORDER BY c.id LIMIT $2) AS compensation,
       ARRAY(SELECT c.id FROM call c WHERE c.kind = 'follow_up' ORDER BY c.id LIMIT $2) AS follow_up,
       ARRAY(SELECT w.id FROM waits w
              ORDER BY array_position('{parked,in_doubt,dispatching,accepted,pending}'::text[], w.state), w.id
              LIMIT $2) AS waits_for,
       (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY coalesce(e.compensation_state IN ('parked', 'failed'), false) DESC,
                                                       e.seq DESC), '[]')::text FROM effect e) AS effects_json,
       ARRAY(SELECT e.compensation FROM effect e WHERE e.compensation IS NOT NULL) AS undoing,
       -- Which end came first is why a batch was cancelled, where no person did it.
       (SELECT to_jsonb(e)::text FROM (
           SELECT f.call_id AS id, f.state, f.reason FROM leafhopper.finished f JOIN leafhopper.outbox o ON o.id = f.call_id
            WHERE f.batch_id = $1 AND f.state <> 'confirmed' AND o.run_when = 'ready'
            ORDER BY f.finished_at, f.call_id LIMIT 1) e) AS first_end_json,
       (SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY a.id), '[]')::text FROM (
           SELECT x.* FROM leafhopper.operator_action x WHERE x.batch_id = $1 ORDER BY x.id DESC LIMIT $2) a) AS actions_json
