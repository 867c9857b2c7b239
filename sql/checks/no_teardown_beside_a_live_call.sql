-- What a batch's end or teardown follows from is that none of its calls may still have an effect.
-- Caller:      leafhopper check, and every test at its end
-- Index:       batch_pkey; reads all live calls
-- Locks:       none
-- Repeatable:  yes
SELECT b.id, b.state, d.call_id, d.state AS call_state
  FROM leafhopper.dispatch d JOIN leafhopper.batch b ON b.id = d.batch_id
 WHERE d.run_when = 'ready' AND d.state IN ('dispatching', 'accepted', 'in_doubt', 'parked')
   AND b.state IN ('compensating', 'succeeded', 'cancelled', 'finished')
