-- Let the effects stand that compensations could not undo.
-- Caller:      store/operator/apply.rs, after act_lock.sql
-- Index:       those of leafhopper.waive()
-- Locks:       the compensations, by id
-- Repeatable:  no: a second time it is refused
-- $1 int8[] ids   $2 text reason
SELECT t.id, leafhopper.waive(t.id, $2) AS state FROM (SELECT u.id FROM unnest($1) AS u (id) ORDER BY u.id OFFSET 0) t
