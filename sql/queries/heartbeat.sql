-- Renew this instance's lease and publish what it knows and can use; learn who else there is, and whether the schema has
-- gone on without it.
-- Caller:      store/instance.rs, from engine/heartbeat.rs
-- Index:       instance_pkey; of the others none: a handful of rows
-- Locks:       its own row
-- Repeatable:  yes
-- $1 uuid id   $2 float8 lease, s   $3 text leaves as JSON   $4 text membership
WITH renewed AS (
    UPDATE leafhopper.instance
       SET heartbeat_at = clock_timestamp(), beat = beat + 1, lease = make_interval(secs => $2), leaves = $3::jsonb,
           membership = $4
     WHERE id = $1
    RETURNING id, beat
)
-- As members.sql; its own row as it was before, but for the leaves: so it tells what was published before this look. All as
-- of when the statement began, however long it waited for its row. A row that is not what it should be costs nobody the lease.
SELECT i.id, i.beat, i.heartbeat_at + i.lease > statement_timestamp() AS alive, i.membership,
       ARRAY(SELECT jsonb_object_keys(CASE WHEN i.id = $1 THEN $3::jsonb
                                           WHEN jsonb_typeof(i.leaves) = 'object' THEN i.leaves
                                           ELSE '{}' END) ORDER BY 1) AS leaf_names,
       r.beat AS renewed, (SELECT max(v.oldest_reader) FROM leafhopper.schema_version v) AS oldest_reader
  FROM leafhopper.instance i LEFT JOIN renewed r ON r.id = i.id
 ORDER BY i.id
