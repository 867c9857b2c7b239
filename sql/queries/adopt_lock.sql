-- One adoption at a time. Two at once could adopt a call twice: one that the first has adopted, and that was
-- sent and has failed meanwhile, has no live row any more that the second, with its older snapshot, would meet.
-- Caller:      store/sweep.rs, in the adoption's transaction, before the statement that adopts
-- Index:       none
-- Locks:       an advisory lock of the transaction; does not wait
-- Repeatable:  yes
SELECT pg_try_advisory_xact_lock(hashtext('leafhopper.adopt')) AS mine
