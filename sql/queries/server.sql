-- What the server is: its version, whether it is a standby, whether it takes writes, and what TLS it sees.
-- Caller:      store/operator/health.rs
-- Index:       none
-- Locks:       none
-- Repeatable:  yes
SELECT current_setting('server_version_num')::int4 AS number, current_setting('server_version') AS version,
       pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only,
       current_user::text AS role,
       (SELECT session.version FROM pg_stat_ssl AS session WHERE session.pid = pg_backend_pid()) AS tls
