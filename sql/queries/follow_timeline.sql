-- A standby was promoted and lost nothing that this instance knows of: the new timeline is the origin's.
-- Caller:      store/origin.rs
-- Index:       origin_pkey
-- Locks:       the row
-- Repeatable:  yes
-- $1 int4 timeline
UPDATE leafhopper.origin SET timeline = $1 WHERE changed_at IS NULL
