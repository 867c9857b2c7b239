-- Remove rows of instances that hold no claim any more: this one at its stop, dead ones after their claims
-- have become calls in doubt.
-- Caller:      store/instance.rs, from engine/reclaimer.rs
-- Index:       instance_pkey
-- Locks:       the removed rows
-- Repeatable:  yes
-- $1 uuid[] ids   $2 bool only those whose lease is over
DELETE FROM leafhopper.instance i
 WHERE i.id = ANY ($1::uuid[])
   AND (NOT $2 OR i.heartbeat_at + i.lease <= clock_timestamp())
   AND NOT EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.state = 'dispatching' AND d.instance = i.id)
