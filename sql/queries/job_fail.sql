-- End a job that can't go on.
-- Caller:      store/operator/job/step.rs
-- Index:       job_pkey
-- Locks:       the job
-- Repeatable:  yes
-- $1 int8 job   $2 text why
UPDATE leafhopper.job j
   SET state = 'failed', error = $2, changed_at = clock_timestamp(), finished_at = clock_timestamp()
 WHERE j.id = $1 AND j.state = 'running'
