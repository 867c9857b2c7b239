-- Was this call, or a newer one, pruned?
-- Caller:      store/prune.rs
-- Index:       setting_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 call
SELECT EXISTS (SELECT FROM leafhopper.setting s WHERE s.name = 'calls_pruned_to' AND s.value::int8 >= $1) AS pruned
