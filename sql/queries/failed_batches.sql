-- Batches that a failed, expired or cancelled call has cancelled, and whose own row does not say so yet.
-- Caller:      store/sweep.rs, from engine/batcher.rs
-- Index:       finished_fails_batch
-- Locks:       none
-- Repeatable:  yes
-- $1 int4 at most so many
SELECT DISTINCT f.batch_id AS id FROM leafhopper.finished f WHERE f.fails_batch LIMIT $1
