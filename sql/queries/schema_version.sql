-- The schema's version, and the oldest program that can work with it.
-- Caller:      store/migrate.rs
-- Index:       none: a row for each migration
-- Locks:       none
-- Repeatable:  yes
SELECT coalesce(max(v.version), 0) AS version, coalesce(max(v.oldest_reader), 0) AS oldest_reader
  FROM leafhopper.schema_version v
