-- Keep how far a job has come.
-- Caller:      store/operator/job/step.rs, last in the transaction of each of its steps
-- Index:       job_pkey
-- Locks:       the job
-- Repeatable:  no: it counts
-- $1 int8 job   $2 int8 how far   $3 int8 so many more are done   $4 int8 so many more were refused
-- $5 text the refusals, a JSON array   $6 int4 so many refusals are kept   $7 bool whether that was the last
UPDATE leafhopper.job j
   SET after_id = $2, done = j.done + $3, refused = j.refused + $4, changed_at = clock_timestamp(),
       refusals = jsonb_path_query_array(j.refusals || $5::jsonb, '$[0 to $last]', jsonb_build_object('last', $6 - 1)),
       state = CASE WHEN $7 THEN 'done' ELSE j.state END,
       finished_at = CASE WHEN $7 THEN clock_timestamp() END
 WHERE j.id = $1
