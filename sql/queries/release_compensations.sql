-- Let compensations go, or park those that a person has to look at first.
-- Caller:      store/teardown.rs, from engine/teardown.rs, in the transaction that added or remade them
-- Index:       dispatch_pkey, outbox_pkey, result_pkey, setting_pkey
-- Locks:       their rows, which this transaction has written
-- Repeatable:  yes
-- $1 int8[] compensations   $2 text[] reason to park, or NULL   $3 text[] what is wrong, or NULL
-- $4 float8[] not to be sent before this time has passed, s
UPDATE leafhopper.dispatch d
   SET held = NULL,
       state = CASE WHEN w.reason IS NULL THEN 'pending' ELSE 'parked' END,
       reason = w.reason,
       last_error = coalesce(w.flaw, d.last_error),
       -- The database has lost commits since the effect was confirmed, and with them perhaps that it was undone.
       suspect = d.suspect OR w.reason IS NULL AND d.tries = 0 AND EXISTS (
           SELECT FROM leafhopper.setting s, leafhopper.outbox o
             JOIN leafhopper.result r ON r.leaf = o.leaf AND r.key = o.key AND r.call_id = o.id
            WHERE s.name = 'effects_asked_before' AND o.id = d.undoes AND r.confirmed_at < s.value::timestamptz),
       due_at = clock_timestamp() + make_interval(secs => w.delay)
  FROM unnest($1::int8[], $2::text[], $3::text[], $4::float8[]) AS w (call_id, reason, flaw, delay)
 WHERE d.call_id = w.call_id AND d.state = 'pending' AND d.held = 'batch'
RETURNING d.call_id
