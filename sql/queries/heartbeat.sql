-- Renew this instance's lease and publish what it knows and can use; learn whether the schema has gone on without it.
-- Caller:      store/instance.rs, from engine/heartbeat.rs
-- Index:       instance_pkey
-- Locks:       its own row
-- Repeatable:  yes
-- $1 uuid id   $2 float8 lease, s   $3 text leaves as JSON   $4 text membership
UPDATE leafhopper.instance
   SET heartbeat_at = clock_timestamp(), beat = beat + 1, lease = make_interval(secs => $2), leaves = $3::jsonb,
       membership = $4
 WHERE id = $1
RETURNING beat, (SELECT max(v.oldest_reader) FROM leafhopper.schema_version v) AS oldest_reader
