-- At most one confirmation stands for an effect.
-- Caller:      leafhopper check, and every test at its end
-- Index:       none: reads all results
-- Locks:       none
-- Repeatable:  yes
SELECT r.leaf, r.key, array_agg(r.generation ORDER BY r.generation) AS generations
  FROM leafhopper.result r
 WHERE r.undone_at IS NULL
 GROUP BY r.leaf, r.key
HAVING count(*) > 1
