-- Each call that a job has changed is kept with who did it and why, once.
-- Caller:      leafhopper check, and every test at its end
-- Index:       none: reads all jobs and actions
-- Locks:       none
-- Repeatable:  yes
SELECT j.id, j.done, count(a.id) AS kept, count(DISTINCT a.call_id) AS calls
  FROM leafhopper.job j
  LEFT JOIN leafhopper.operator_action a ON a.detail ->> 'job' = j.id::text AND a.call_id IS NOT NULL
 GROUP BY j.id
HAVING j.done <> count(a.id) OR count(a.id) <> count(DISTINCT a.call_id)
