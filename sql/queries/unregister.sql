-- Remove rows of instances that hold no claim any more: this one at its stop, dead ones after their claims
-- have become calls in doubt.
-- Caller:      store/instance.rs, from engine/reclaimer.rs
-- Index:       instance_pkey
-- Locks:       the removed rows
-- Repeatable:  yes
-- $1 uuid the one that leaves, or NULL   $2 uuid[] dead ones: each where its lease is over
DELETE FROM leafhopper.instance i
 WHERE (i.id = $1 OR (i.id = ANY ($2::uuid[]) AND i.heartbeat_at + i.lease <= clock_timestamp()))
   AND NOT EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.state = 'dispatching' AND d.instance = i.id)
