-- Lock the rows of batches that are to be looked at. The look is the next statement of the transaction: its snapshot is
-- younger than the lock, so it sees the calls as they are under the state that it decides on. In one statement it would
-- decide on the newest state by an older sight of the calls.
-- Caller:      store/batch.rs, from engine/batcher.rs and engine/teardown.rs
-- Index:       batch_pkey
-- Locks:       the batches' rows, by id; skips rows that another transaction holds
-- Repeatable:  yes
-- $1 uuid[] batches
SELECT b.id FROM leafhopper.batch b WHERE b.id = ANY ($1::uuid[]) ORDER BY b.id FOR UPDATE SKIP LOCKED
