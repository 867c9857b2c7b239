-- What a probe must know of the calls that it asks about.
-- Caller:      store/probe.rs, from engine/prober.rs
-- Index:       outbox_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 int8[] call ids
SELECT o.id, o.key, o.method, o.path, o.body::text, o.body_raw, o.credential, o.ordering_key, o.probe::text,
       to_jsonb(o.batch_id)::text AS batch_id, o.meta::text, o.meta ->> 'traceparent' AS traceparent
  FROM leafhopper.outbox o WHERE o.id = ANY ($1::int8[])
