-- Keep which database this is: the first instance that runs does.
-- Caller:      store/origin.rs
-- Index:       origin_pkey
-- Locks:       the row
-- Repeatable:  yes
-- $1 int8 system identifier   $2 int4 timeline   $3 text name   $4 int8 oid
INSERT INTO leafhopper.origin (system_identifier, timeline, database_name, database_oid)
VALUES ($1, $2, $3, $4)
ON CONFLICT (only_row) DO NOTHING
