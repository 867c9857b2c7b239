-- This instance's row: at start, and again where another took it for dead and removed it.
-- Caller:      store/instance.rs, from engine/heartbeat.rs
-- Index:       instance_pkey
-- Locks:       its own row
-- Repeatable:  yes
-- $1 uuid id   $2 text name   $3 float8 lease, s   $4 text leaves as JSON   $5 int8 its last beat that it knows of
-- The beats go on where they were: a beat that falls behind means that the database lost commits.
INSERT INTO leafhopper.instance (id, name, lease, leaves, beat)
VALUES ($1, $2, make_interval(secs => $3), $4::jsonb, $5 + 1)
ON CONFLICT (id) DO NOTHING
