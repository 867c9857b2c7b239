-- The named calls as lists show them, those that match. A list leaves bodies, headers and templates out.
-- Caller:      store/operator/list.rs
-- Index:       outbox_pkey, dispatch_pkey, finished_pkey, result_pkey, order_hold_head
-- Locks:       none
-- Repeatable:  yes
-- $1 int8[] ids   $2 text state or NULL   $3 text reason or NULL   $4 bool only stuck ones   $5 text leaf or NULL
-- $6 text key or NULL   $7 uuid batch or NULL   $8 bool only compensations   $9 bool only heads that hold others
SELECT c.id, c.leaf, c.key, c.state, c.reason, c.waits_for, c.attempts, c.last_status, c.stuck,
       c.batch_id, c.run_when, c.undoes,
       extract(epoch FROM now() - c.created_at)::float8 AS age,
       (SELECT to_jsonb(l) FROM (
           SELECT c.id, c.leaf, c.key, c.method, c.path, c.batch_id, c.run_when, c.ordering_key, c.priority,
                  c.not_before, c.deadline, c.credential, c.meta, c.created_at, c.undoes, c.state, c.reason,
                  c.waits_for, c.attempts, c.next_attempt_at, c.in_doubt_since, c.last_status, c.last_error,
                  c.claimed_by, c.finished_at, c.undone_at, c.stuck) l)::text AS json
  FROM leafhopper.call c
 WHERE c.id = ANY ($1)
   AND ($2 IS NULL OR c.state = $2)
   AND ($3 IS NULL OR c.reason = $3)
   AND (NOT $4 OR c.stuck)
   AND ($5 IS NULL OR c.leaf = $5)
   AND ($6 IS NULL OR c.key = $6)
   AND ($7 IS NULL OR c.batch_id = $7)
   AND (NOT $8 OR c.undoes IS NOT NULL)
   AND (NOT $9 OR EXISTS (SELECT FROM leafhopper.order_hold h WHERE h.head = c.id))
 ORDER BY c.id
