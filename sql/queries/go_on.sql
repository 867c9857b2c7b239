-- A person said how to go on after the database changed: what was claimed or pending before may have been
-- executed (probe) or was not (resend).
-- Caller:      store/operator/leaves.rs, after act_note.sql
-- Index:       origin_pkey, setting_pkey
-- Locks:       all live calls
-- Repeatable:  yes
-- $1 bool whether these calls may have been executed
-- $2 int8 system identifier   $3 int4 timeline   $4 text name   $5 int8 oid
WITH origin AS (
    UPDATE leafhopper.origin
       SET changed_at = NULL, change = NULL, system_identifier = $2, timeline = $3, database_name = $4,
           database_oid = $5
),
-- What was lost can have undone effects: whatever undoes one from before now is asked about first.
asked AS (
    INSERT INTO leafhopper.setting (name, value) SELECT 'effects_asked_before', clock_timestamp()::text WHERE $1
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
),
dead AS MATERIALIZED (
    SELECT d.call_id FROM leafhopper.dispatch d
     WHERE d.state = 'dispatching'
       AND NOT EXISTS (SELECT FROM leafhopper.instance i
                        WHERE i.id = d.instance AND i.heartbeat_at + i.lease > clock_timestamp())
)
-- Pending calls keep their place, their turn and their time: they become doubts when the claim comes to them.
UPDATE leafhopper.dispatch d
   SET suspect = d.state = 'pending' AND $1,
       state = CASE WHEN d.state = 'pending' THEN 'pending' WHEN $1 THEN 'in_doubt' ELSE 'pending' END,
       in_doubt_since = CASE WHEN d.state = 'dispatching' AND $1 THEN coalesce(d.in_doubt_since, clock_timestamp())
                             WHEN d.state = 'dispatching' THEN NULL
                             ELSE d.in_doubt_since END,
       -- Its request can outlive its instance: an absence counts from the time limit on.
       alive_until = CASE WHEN d.state = 'dispatching' THEN greatest(d.alive_until, clock_timestamp())
                          ELSE d.alive_until END,
       due_at = CASE WHEN d.state = 'dispatching' AND $1 THEN greatest(d.alive_until, clock_timestamp())
                     WHEN d.state = 'dispatching' THEN clock_timestamp()
                     ELSE d.due_at END,
       resend = false, probes = 0, exists_said = false
 -- The state is asked for again: one that was dead to the snapshot can have told its outcome meanwhile.
 WHERE (d.state = 'dispatching' AND d.call_id IN (SELECT x.call_id FROM dead x)) OR ($1 AND d.state = 'pending')
RETURNING d.call_id
