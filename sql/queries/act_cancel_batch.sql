-- Cancel a batch.
-- Caller:      store/operator/batches.rs, after act_lock.sql
-- Index:       those of leafhopper.cancel_batch()
-- Locks:       the batch's row
-- Repeatable:  no: a second time it is refused
-- $1 uuid batch   $2 text reason
SELECT leafhopper.cancel_batch($1, $2) AS state
