-- What the server is: its version, whether it is a standby, and whether it takes writes.
-- Caller:      store/operator/health.rs
-- Index:       none
-- Locks:       none
-- Repeatable:  yes
SELECT current_setting('server_version_num')::int4 AS number, current_setting('server_version') AS version,
       pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only,
       current_user::text AS role
