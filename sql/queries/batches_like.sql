-- Batches whose id lies between two: those that begin alike.
-- Caller:      store/operator/watch.rs
-- Index:       batch_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid from this one   $2 uuid to this one   $3 int8 at most so many
SELECT b.id FROM leafhopper.batch b WHERE b.id BETWEEN $1 AND $2 ORDER BY b.id LIMIT $3
