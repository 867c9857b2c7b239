-- Is there a schema of leafhopper's?
-- Caller:      store/migrate.rs
-- Index:       catalogue
-- Locks:       none
-- Repeatable:  yes
SELECT to_regclass('leafhopper.schema_version') IS NOT NULL AS there
