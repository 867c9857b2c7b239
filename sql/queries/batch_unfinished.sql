-- Batches on their way to their end, a page at a time. What they wait for can end without a mark: a leaf that nobody
-- knew is configured, or the process that had read a mark died.
-- Caller:      store/batch.rs, from engine/batcher.rs
-- Index:       batch_unfinished
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid above this id   $2 int4 at most so many
SELECT b.id FROM leafhopper.batch b
 WHERE b.state <> 'open' AND b.finished_at IS NULL AND b.id > $1
 ORDER BY b.id LIMIT $2
