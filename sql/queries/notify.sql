-- A notification without content. It commits at once, so half of the queue is margin enough.
-- Caller:      store/wakeup.rs
-- Index:       none
-- Locks:       none
-- Repeatable:  yes
-- $1 text channel
SELECT pg_notify($1, '')::text WHERE pg_notification_queue_usage() < 0.5
