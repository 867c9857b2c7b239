-- A notification without content.
-- Caller:      store/wakeup.rs
-- Index:       none
-- Locks:       none
-- Repeatable:  yes
-- $1 text channel
SELECT pg_notify($1, '')::text WHERE pg_notification_queue_usage() < 0.5
