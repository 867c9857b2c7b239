-- Take a person's word that the effects of calls exist. `recorded` is false where an effect stands already.
-- Caller:      store/operator/apply.rs, after act_lock.sql
-- Index:       those of leafhopper.take_word()
-- Locks:       the calls of each key, by id
-- Repeatable:  no: a second time nothing is recorded
-- $1 int8[] ids   $2 text reason   $3 int4 status   $4 text body or NULL
WITH said AS MATERIALIZED (
    SELECT o.id, o.leaf, o.batch_id,
           leafhopper.take_word(o.leaf, o.key, $3, $4::jsonb, 'operator') AS recorded
      FROM (SELECT x.* FROM leafhopper.outbox x WHERE x.id = ANY ($1) ORDER BY x.id OFFSET 0) o
),
noted AS MATERIALIZED (
    SELECT s.id, CASE WHEN s.recorded
                      THEN leafhopper.note('resolve_confirmed', s.id, s.batch_id, s.leaf, $2)::text END AS done
      FROM said s
)
SELECT s.id, s.recorded, n.done FROM said s JOIN noted n USING (id)
