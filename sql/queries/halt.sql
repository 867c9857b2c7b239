-- All sending stops: this is not the database that it was, or it lost what was committed.
-- Caller:      store/origin.rs
-- Index:       origin_pkey
-- Locks:       the row
-- Repeatable:  yes
-- $1 text what differs
UPDATE leafhopper.origin SET changed_at = coalesce(changed_at, clock_timestamp()), change = coalesce(change, $1)
