-- Marks of batches that are to be looked at, a page at a time.
-- Caller:      store/batch.rs, from engine/batcher.rs
-- Index:       batch_mark_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 above this id   $2 int4 at most so many
SELECT m.id, m.batch_id FROM leafhopper.batch_mark m WHERE m.id > $1 ORDER BY m.id LIMIT $2
