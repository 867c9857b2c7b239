-- When a live call was claimed, and what comes next: what the view does not have. No row once the call is final.
-- Caller:      store/operator/watch.rs
-- Index:       dispatch_pkey, instance_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 id
SELECT d.tries, d.probes, d.crashes,
       to_jsonb(d.first_claimed_at) #>> '{}' AS first_claimed_at, to_jsonb(d.claimed_at) #>> '{}' AS claimed_at,
       to_jsonb(d.alive_until) #>> '{}' AS alive_until, to_jsonb(d.give_up_at) #>> '{}' AS give_up_at,
       d.cancel_requested, i.name AS instance
  FROM leafhopper.dispatch d LEFT JOIN leafhopper.instance i ON i.id = d.instance
 WHERE d.call_id = $1
