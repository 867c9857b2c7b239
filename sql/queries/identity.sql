-- Which database this is, and which one it was when the first instance ran.
-- Caller:      store/origin.rs
-- Index:       none: one row
-- Locks:       none
-- Repeatable:  yes
-- The timeline is the first eight digits of the current WAL file's name (PostgreSQL, chapter 9.27.3).
SELECT (SELECT s.system_identifier FROM pg_control_system() s) AS system_identifier,
       ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int4 AS timeline,
       current_database()::text AS database_name,
       (SELECT d.oid::int8 FROM pg_database d WHERE d.datname = current_database()) AS database_oid,
       g.system_identifier AS was_system_identifier, g.timeline AS was_timeline,
       g.database_name AS was_database_name, g.database_oid AS was_database_oid,
       g.changed_at IS NOT NULL AS changed, g.change
  FROM (SELECT true AS one) one LEFT JOIN leafhopper.origin g ON true
