-- How many bytes the body of a call is as it is sent.
-- Caller:      store/body.rs, from engine/bodies.rs, before the body is read
-- Index:       outbox_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 call id
SELECT coalesce(octet_length(o.body::text), octet_length(o.body_raw))::int8 AS bytes
  FROM leafhopper.outbox o
 WHERE o.id = $1
