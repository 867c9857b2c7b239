-- This instance has found all that it knows to be committed on this timeline; have all others that live?
-- Caller:      store/origin.rs, from engine/guardian.rs
-- Index:       instance_pkey
-- Locks:       its own row
-- Repeatable:  yes
-- $1 uuid instance   $2 int4 timeline
WITH own AS (
    UPDATE leafhopper.instance i SET witnessed_timeline = $2 WHERE i.id = $1 RETURNING i.id
)
SELECT EXISTS (SELECT FROM own)
       AND NOT EXISTS (SELECT FROM leafhopper.instance i
                        WHERE i.id <> $1 AND i.heartbeat_at + i.lease > clock_timestamp()
                          AND i.witnessed_timeline IS DISTINCT FROM $2) AS by_all
