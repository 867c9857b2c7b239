-- The highest id of a call.
-- Caller:      store/operator/job/mod.rs
-- Index:       outbox_pkey
-- Locks:       none
-- Repeatable:  yes
SELECT coalesce(max(o.id), 0) AS id FROM leafhopper.outbox o
