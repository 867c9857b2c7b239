-- Begin a change of all calls that match a filter, of those that there are.
-- Caller:      store/operator/job/mod.rs
-- Index:       none
-- Locks:       none
-- Repeatable:  no: it is begun twice
-- $1 text action   $2 text filter, JSON   $3 text detail, JSON   $4 text actor   $5 text reason   $6 float8 spread, s, or NULL
-- $7 int8 the highest id that is meant   $8 int8 how many match, or NULL
INSERT INTO leafhopper.job (action, filter, detail, actor, reason, spread, last_id, matched)
VALUES ($1, $2::jsonb, $3::jsonb, $4, $5, make_interval(secs => $6), $7, $8)
RETURNING id, to_jsonb(job)::text AS json
