-- Spread calls that are to be sent again: each is due at some time within the span.
-- Caller:      store/operator/job/step.rs, in the transaction that says that they are to be sent
-- Index:       dispatch_pkey
-- Locks:       the calls, which are locked already
-- Repeatable:  no: it adds up
-- $1 int8[] ids   $2 float8 the span, s
UPDATE leafhopper.dispatch d SET due_at = d.due_at + make_interval(secs => random() * $2)
 WHERE d.call_id = ANY ($1) AND d.state = 'pending'
