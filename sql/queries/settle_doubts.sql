-- Write down how calls in doubt go on: parked, to be sent again with the same key, or being asked about.
-- Caller:      store/doubt.rs, from engine/prober.rs
-- Index:       dispatch_pkey, outbox_pkey, result_pkey
-- Locks:       the named rows; skips rows that another transaction holds
-- Repeatable:  yes; of two instances that ask about one call, only one finds it due
-- $1 int8[] call id   $2 int4[] tries as seen   $3 text[] park | resend | ask   $4 text[] reason to park
-- $5 float8[] ask: how long the probe can take, s; then anyone may ask again
-- $6 bool[] resend: its batch is cancelled, and the resend is the question
WITH input AS (
    SELECT * FROM unnest($1::int8[], $2::int4[], $3::text[], $4::text[], $5::float8[], $6::bool[])
        AS i (call_id, tries, kind, reason, takes, asks)
),
own AS MATERIALIZED (
    -- By its id: see record_plain.sql.
    SELECT i.* FROM input i JOIN leafhopper.dispatch d USING (call_id)
     WHERE d.state || '' = 'in_doubt' AND d.tries = i.tries AND d.due_at <= clock_timestamp()
       -- It may have been cancelled since it was looked at: then it is asked about, and not sent.
       AND (i.kind <> 'resend' OR d.cancel_requested IS NULL)
       -- Its effect may stand by now: somebody's word, of a call that was taken over since the last look.
       -- answer_doubts.sql ends it.
       AND NOT EXISTS (SELECT FROM leafhopper.outbox o
                         JOIN leafhopper.result r ON r.leaf = o.leaf AND r.key = o.key AND r.undone_at IS NULL
                        WHERE o.id = d.call_id
                       OFFSET 0)
     ORDER BY d.call_id
       FOR UPDATE OF d SKIP LOCKED
)
UPDATE leafhopper.dispatch d
   SET state = CASE WHEN o.kind = 'park' THEN 'parked' ELSE 'in_doubt' END,
       reason = CASE WHEN o.kind = 'park' THEN o.reason END,
       resend = o.kind = 'resend',
       resend_asks = o.kind = 'resend' AND o.asks,
       due_at = clock_timestamp() + make_interval(secs => CASE WHEN o.kind = 'ask' THEN o.takes ELSE 0 END)
  FROM own o
 WHERE d.call_id = o.call_id
RETURNING d.call_id, d.leaf, d.state
