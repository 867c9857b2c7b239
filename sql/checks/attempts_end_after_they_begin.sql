-- No attempt ends before it begins.
-- Caller:      leafhopper check, and every test at its end
-- Index:       none: reads all attempts
-- Locks:       none
-- Repeatable:  yes
SELECT a.call_id, a.attempt, a.class, a.started_at, a.finished_at
  FROM leafhopper.attempt a
 WHERE a.finished_at < a.started_at
