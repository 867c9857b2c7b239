-- Changes of many calls, the newest first, a page at a time; or one of them.
-- Caller:      store/operator/job/mod.rs
-- Index:       job_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 this one, or NULL   $2 int8 behind this one   $3 int8 at most so many
(SELECT j.id, to_jsonb(j)::text AS json FROM leafhopper.job j WHERE j.id = $1)
 UNION ALL
(SELECT j.id, to_jsonb(j)::text AS json FROM leafhopper.job j WHERE $1 IS NULL AND j.id < $2 ORDER BY j.id DESC LIMIT $3)
