-- A new generation of an effect begins only after the one before was undone.
-- Caller:      leafhopper check, and every test at its end
-- Index:       none: reads all results
-- Locks:       none
-- Repeatable:  yes
SELECT r.leaf, r.key, r.generation
  FROM leafhopper.result r
 WHERE r.generation > 1
   AND NOT EXISTS (SELECT FROM leafhopper.result b
                    WHERE b.leaf = r.leaf AND b.key = r.key AND b.generation = r.generation - 1
                      AND b.undone_at IS NOT NULL)
