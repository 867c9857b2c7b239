-- What the leaf said last to each of these calls, where it did not confirm: its status, and the beginning of its answer.
-- Caller:      store/operator/watch.rs
-- Index:       attempt_call
-- Locks:       none
-- Repeatable:  yes
-- $1 int8[] ids
SELECT u.id, a.status, a.body
  FROM unnest($1::int8[]) AS u (id)
 CROSS JOIN LATERAL (
      SELECT x.status, x.body FROM leafhopper.attempt x
       WHERE x.call_id = u.id AND x.class NOT IN ('probe_absent', 'probe_unclear')
       ORDER BY x.id DESC LIMIT 1) a
 WHERE a.body <> ''
