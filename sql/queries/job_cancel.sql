-- End a job by hand; what it has done stands.
-- Caller:      store/operator/job/mod.rs, after act_lock.sql
-- Index:       job_pkey
-- Locks:       the job: waits for its step under way
-- Repeatable:  no: a second time there is no such job that runs
-- $1 int8 job   $2 text reason
WITH ended AS (
    UPDATE leafhopper.job j
       SET state = 'cancelled', changed_at = clock_timestamp(), finished_at = clock_timestamp()
     WHERE j.id = $1 AND j.state = 'running'
    RETURNING j.*
)
SELECT e.id, to_jsonb(e)::text AS json, set_config('leafhopper.job', e.id::text, true) AS named,
       leafhopper.note('cancel_job', NULL, NULL, NULL, $2)::text AS noted
  FROM ended e
