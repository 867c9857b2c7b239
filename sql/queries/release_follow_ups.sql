-- Let the follow-ups of a batch go whose phase has begun.
-- Caller:      store/batch.rs, from engine/batcher.rs
-- Index:       batch_pkey, dispatch_batch
-- Locks:       the released rows; skips rows that another transaction holds
-- Repeatable:  yes
-- $1 uuid[] batches   $2 int4 at most so many calls
WITH due AS MATERIALIZED (
    SELECT d.call_id
      FROM leafhopper.batch b JOIN leafhopper.dispatch d ON d.batch_id = b.id
     WHERE b.id = ANY ($1::uuid[]) AND b.finished_at IS NULL
       AND d.held = 'batch' AND d.undoes IS NULL
       AND (b.state = 'succeeded' AND d.run_when = 'batch_succeeded' AND b.last_phase_at IS NULL
            OR b.state = 'cancelled' AND d.run_when = 'batch_failed' AND b.last_phase_at IS NULL
            OR b.state IN ('succeeded', 'cancelled', 'finished') AND d.run_when = 'batch_settled'
               AND b.last_phase_at IS NOT NULL)
     -- Of one ordering key the first of them first.
     ORDER BY d.call_id LIMIT $2
       FOR UPDATE OF d SKIP LOCKED
)
UPDATE leafhopper.dispatch d
   -- One with an ordering key finds its place among those of its key first.
   SET held = CASE WHEN d.ordering_key IS NOT NULL THEN 'arrived' END,
       due_at = greatest(d.due_at, clock_timestamp())
  FROM due u WHERE d.call_id = u.call_id
RETURNING d.call_id
