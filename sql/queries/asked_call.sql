-- What a probe must know of the call that it asks about.
-- Caller:      store/probe.rs, from engine/ask.rs
-- Index:       outbox_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 call id
SELECT o.id, o.key, o.method, o.path, o.body::text, o.body_raw, o.credential, o.ordering_key, o.batch_id,
       o.undoes IS NOT NULL AS compensates, u.probe::text,
       o.meta ->> 'traceparent' AS traceparent, o.meta ->> 'tracestate' AS tracestate,
       -- What templates and expressions see.
       jsonb_build_object('id', u.id, 'key', u.key, 'method', u.method, 'path', u.path, 'body', u.body,
                          'batch_id', u.batch_id, 'ordering_key', u.ordering_key, 'meta', u.meta)::text AS seen
  FROM leafhopper.outbox o
  -- A compensation asks whether the effect that it undoes is still there.
  JOIN leafhopper.outbox u ON u.id = coalesce(o.undoes, o.id)
 WHERE o.id = $1
