-- One at a time takes untracked calls up. Two at once could take one up twice: a call that the first has taken up,
-- and that was sent and has failed meanwhile, has no live row any more that the second, with its older snapshot,
-- would meet.
-- Caller:      store/sweep.rs, in the transaction of untracked_take_up.sql, before it
-- Index:       none
-- Locks:       an advisory lock of the transaction; does not wait
-- Repeatable:  yes
SELECT pg_try_advisory_xact_lock(hashtext('leafhopper.untracked')) AS mine
