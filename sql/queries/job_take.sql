-- Take the next calls of a job, unless another instance does, or has done, or it was cancelled. What is changed in this
-- transaction is kept under its number.
-- Caller:      store/operator/job/step.rs, first in the transaction of each of its steps
-- Index:       job_pkey, job_running
-- Locks:       the job; skips it where it is locked
-- Repeatable:  yes
-- $1 int8 job   $2 int8 how far it has come
SELECT j.id, set_config('leafhopper.job', j.id::text, true) AS named
  FROM leafhopper.job j WHERE j.id = $1 AND j.after_id = $2 AND j.state = 'running'
   FOR UPDATE SKIP LOCKED
