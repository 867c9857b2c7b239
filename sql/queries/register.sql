-- This instance's row: at start, and again where another took it for dead and removed it.
-- Caller:      store/instance.rs, from engine/heartbeat.rs
-- Index:       instance_pkey
-- Locks:       its own row
-- Repeatable:  yes
-- $1 uuid id   $2 text name   $3 float8 lease, s   $4 text leaves as JSON
INSERT INTO leafhopper.instance (id, name, lease, leaves)
VALUES ($1, $2, make_interval(secs => $3), $4::jsonb)
ON CONFLICT (id) DO NOTHING
