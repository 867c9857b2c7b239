-- A call is confirmed only by a result of its own leaf and key, which may have been undone since.
-- Caller:      leafhopper check, and every test at its end
-- Index:       outbox_pkey, result_pkey; reads all finished calls
-- Locks:       none
-- Repeatable:  yes
SELECT f.call_id, f.generation
  FROM leafhopper.finished f JOIN leafhopper.outbox o ON o.id = f.call_id
 WHERE f.state = 'confirmed'
   AND NOT EXISTS (SELECT FROM leafhopper.result r
                    WHERE r.leaf = o.leaf AND r.key = o.key AND r.generation = f.generation)
