-- Take a person's word that parked calls were not executed.
-- Caller:      store/operator/apply.rs, after act_lock.sql
-- Index:       those of leafhopper.resolve_not_executed()
-- Locks:       the calls, by id
-- Repeatable:  no: a second time it is refused
-- $1 int8[] ids   $2 text reason   $3 bool whether they are sent again
SELECT t.id, leafhopper.resolve_not_executed(t.id, $2, $3) AS state
  FROM (SELECT u.id FROM unnest($1) AS u (id) ORDER BY u.id OFFSET 0) t
