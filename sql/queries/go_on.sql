-- A person said how to go on after the database changed: what was claimed or pending before is in doubt
-- (probe) or is sent (resend).
-- Caller:      store/operator/leaves.rs, after act_note.sql
-- Index:       origin_pkey
-- Locks:       all live calls
-- Repeatable:  yes
-- $1 bool whether pending calls are in doubt
-- $2 int8 system identifier   $3 int4 timeline   $4 text name   $5 int8 oid
WITH origin AS (
    UPDATE leafhopper.origin
       SET changed_at = NULL, change = NULL, system_identifier = $2, timeline = $3, database_name = $4,
           database_oid = $5
),
-- One call of a key at the most may be in doubt: the lowest id; the others wait for it.
pending AS MATERIALIZED (
    SELECT DISTINCT ON (d.leaf, d.key) d.call_id
      FROM leafhopper.dispatch d
     WHERE $1 AND d.state = 'pending' AND d.held IS NULL
       AND NOT EXISTS (SELECT FROM leafhopper.dispatch x
                        WHERE x.leaf = d.leaf AND x.key = d.key AND x.state IN ('dispatching', 'in_doubt', 'parked'))
     ORDER BY d.leaf, d.key, d.call_id
)
UPDATE leafhopper.dispatch d
   SET state = CASE WHEN d.state = 'dispatching' AND NOT $1 THEN 'pending' ELSE 'in_doubt' END,
       in_doubt_since = CASE WHEN d.state = 'dispatching' AND NOT $1 THEN NULL
                             ELSE coalesce(d.in_doubt_since, clock_timestamp()) END,
       first_claimed_at = coalesce(d.first_claimed_at, clock_timestamp()),
       alive_until = clock_timestamp(), due_at = clock_timestamp(), resend = false, probes = 0, exists_said = false
 WHERE (d.state = 'dispatching'
        AND NOT EXISTS (SELECT FROM leafhopper.instance i
                         WHERE i.id = d.instance AND i.heartbeat_at + i.lease > clock_timestamp()))
    OR d.call_id IN (SELECT p.call_id FROM pending p)
RETURNING d.call_id
