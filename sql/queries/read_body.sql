-- The body of a call whose claim left it in the table.
-- Caller:      store/body.rs, from engine/bodies.rs
-- Index:       outbox_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 call id
SELECT o.body::text, o.body_raw FROM leafhopper.outbox o WHERE o.id = $1
