-- Changes of many calls that are under way.
-- Caller:      store/operator/job/step.rs, from engine/jobs.rs
-- Index:       job_running
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 at most so many
SELECT j.id, j.action, j.filter::text AS filter, (j.detail -> 'body')::text AS body, (j.detail ->> 'status')::int4 AS status,
       (j.detail ->> 'send')::bool AS send, j.actor, j.reason, extract(epoch FROM j.spread)::float8 AS spread,
       j.last_id, j.after_id
  FROM leafhopper.job j WHERE j.state = 'running' ORDER BY j.id LIMIT $1
