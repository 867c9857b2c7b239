-- The teardown of these batches is done: nothing is left that it could undo.
-- Caller:      store/teardown.rs, from engine/teardown.rs, in the transaction of effects_to_undo.sql
-- Index:       batch_live or batch_pkey
-- Locks:       their rows, which this transaction holds
-- Repeatable:  yes
-- $1 uuid[] batches
UPDATE leafhopper.batch SET state = 'cancelled', changed_at = clock_timestamp()
 WHERE id = ANY ($1::uuid[]) AND state = 'compensating'
RETURNING id
