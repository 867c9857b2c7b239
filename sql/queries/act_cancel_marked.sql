-- Cancel calls that somebody has cancelled while they were dispatching, now that it is said that they were not sent.
-- Caller:      store/operator/leaves.rs, after go_on.sql
-- Index:       dispatch_pkey, those of leafhopper.cancel()
-- Locks:       the calls, by id
-- Repeatable:  yes
-- $1 int8[] the calls that were moved
SELECT t.call_id, leafhopper.cancel(t.call_id, t.cancel_requested) AS state
  FROM (SELECT d.call_id, d.cancel_requested FROM leafhopper.dispatch d
         WHERE d.call_id = ANY ($1) AND d.state = 'pending' AND d.cancel_requested IS NOT NULL AND NOT d.suspect
         ORDER BY d.call_id OFFSET 0) t
