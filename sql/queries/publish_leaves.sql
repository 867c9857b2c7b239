-- What functions and the view must know of the configuration.
-- Caller:      store/instance.rs, from engine/heartbeat.rs at start and after a reload
-- Index:       leaf_control_pkey, setting_pkey
-- Locks:       the rows it changes
-- Repeatable:  yes
-- $1 text[] leaves   $2 bool[] hold after a failed head   $3 float8 stuck_after, s
WITH kept AS (
    INSERT INTO leafhopper.setting (name, value)
    VALUES ('stuck_after', make_interval(secs => $3)::text)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE setting.value <> excluded.value
)
INSERT INTO leafhopper.leaf_control (leaf, hold_after_failed_head)
SELECT * FROM unnest($1::text[], $2::bool[]) AS u (leaf, hold)
 ORDER BY u.leaf
ON CONFLICT (leaf) DO UPDATE SET hold_after_failed_head = excluded.hold_after_failed_head, updated_at = now()
 WHERE leaf_control.hold_after_failed_head <> excluded.hold_after_failed_head
