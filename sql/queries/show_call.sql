-- One call with everything that is known of it.
-- Caller:      store/operator/show.rs
-- Index:       outbox_pkey, attempt_call, result_pkey, batch_pkey, outbox_batch, finished_batch, operator_action_call, outbox_key
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 id   $2 int8 of attempts and of actions, the latest so many   $3 int8 of its batch's ended calls, so many
SELECT c.id, c.leaf, c.key, c.state, c.reason, c.waits_for, c.attempts, c.last_status, c.stuck,
       extract(epoch FROM now() - c.created_at)::float8 AS age,
       to_jsonb(c)::text AS json, c.batch_id, c.run_when, c.undoes,
       leafhopper.may_run_again(c.id) AS may_run_again,
       -- Never is far away: infinite times can't be subtracted before PostgreSQL 17.
       CASE WHEN c.next_attempt_at IS NOT NULL
            THEN extract(epoch FROM least(c.next_attempt_at, timestamptz '9999-12-31 UTC') - now())::float8 END AS due_in,
       (SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY a.id), '[]')::text
          FROM (SELECT x.* FROM leafhopper.attempt x WHERE x.call_id = c.id ORDER BY x.id DESC LIMIT $2) a) AS attempts_json,
       (SELECT to_jsonb(r)::text FROM leafhopper.result r
         WHERE r.leaf = c.leaf AND r.key = c.key
           AND (r.call_id = c.id
                OR r.generation = (SELECT f.generation FROM leafhopper.finished f WHERE f.call_id = c.id))
         ORDER BY r.generation DESC LIMIT 1) AS result_json,
       (SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY a.id), '[]')::text
          FROM (SELECT x.* FROM leafhopper.operator_action x
                 WHERE x.call_id = c.id ORDER BY x.id DESC LIMIT $2) a) AS actions_json,
       -- Of its batch, the calls that ended without a confirmation, the first so many.
       (SELECT coalesce(jsonb_agg(e ORDER BY e.finished_at, e.id), '[]')::text FROM (
           SELECT f.call_id AS id, f.state, f.reason, f.finished_at FROM leafhopper.finished f
            WHERE f.batch_id = c.batch_id AND f.state <> 'confirmed'
            ORDER BY f.finished_at, f.call_id LIMIT $3) e) AS ended_json,
       ARRAY(SELECT o.id FROM leafhopper.outbox o
              WHERE o.leaf = c.leaf AND o.key = c.key AND o.id <> c.id
              ORDER BY o.id DESC LIMIT 50) AS same_key,
       (SELECT count(*) FROM leafhopper.instance i WHERE i.heartbeat_at + i.lease > now()) AS instances,
       -- Whether calls behind this one wait for a word, since it ended without a confirmation.
       EXISTS (SELECT FROM leafhopper.order_hold h WHERE h.head = c.id) AS holds_others
  FROM leafhopper.call c
 WHERE c.id = $1
