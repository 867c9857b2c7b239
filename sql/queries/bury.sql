-- Remove the row of an instance whose process is known to be dead. What it still had claimed becomes doubt.
-- Caller:      store/instance.rs, from engine/mod.rs at start
-- Index:       instance_pkey
-- Locks:       the instance's row
-- Repeatable:  yes
-- $1 uuid id
DELETE FROM leafhopper.instance WHERE id = $1
