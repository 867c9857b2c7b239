-- Take each batch one step further, where its calls allow it, and forget the marks that led here.
-- Caller:      store/batch.rs, from engine/batcher.rs, after lock_batches.sql in the same transaction
-- Index:       batch_pkey, dispatch_batch, finished_fails_batch, outbox_batch, result_batch, batch_mark_pkey
-- Locks:       rows of finished that are told, skipping locked ones; where a batch has no row yet, it waits for an app
--              that is just adding it
-- Repeatable:  yes
-- $1 uuid[] batches   $2 uuid[] those of them that are locked
-- $3 int8[] marks     $4 uuid[] their batches   $5 text[] leaves with a compensation   $6 text[] known leaves
-- Gives each batch that was looked at: its state before and after, and what is to be done for it.
--
-- Announce, commit, look: what cancels or closes a batch is committed before the look that settles it begins, so a call
-- that could still be claimed is seen by that look, and a call that it does not see is claimed under the announcement.
--
-- OFFSET 0 keeps each EXISTS a look-up: PostgreSQL 18 else hashes all of the table, whatever enable_seqscan says.
WITH named AS MATERIALIZED (
    SELECT u.id, b.id IS NOT NULL AS has_row, coalesce(b.state, 'open') AS state, coalesce(b.sealed, true) AS sealed,
           coalesce(b.allow_failures, false) AS allow_failures, b.idle_since, b.last_phase_at, b.finished_at
      FROM (SELECT DISTINCT x.id FROM unnest($1::uuid[]) AS x (id)) u
      LEFT JOIN leafhopper.batch b ON b.id = u.id
     -- A row that was added since the first statement is not locked: the next look's.
     WHERE b.id IS NULL OR u.id = ANY ($2::uuid[])
),
seen AS MATERIALIZED (
    SELECT n.*,
           EXISTS (SELECT FROM leafhopper.outbox o WHERE o.batch_id = n.id OFFSET 0) AS has_calls,
           EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.batch_id = n.id AND d.run_when = 'ready' OFFSET 0)
               AS ready_lives,
           EXISTS (SELECT FROM leafhopper.dispatch d
                    WHERE d.batch_id = n.id AND d.run_when IN ('batch_succeeded', 'batch_failed') OFFSET 0) AS phase_lives,
           EXISTS (SELECT FROM leafhopper.dispatch d WHERE d.batch_id = n.id AND d.run_when = 'batch_settled' OFFSET 0)
               AS last_lives,
           EXISTS (SELECT FROM leafhopper.finished f WHERE f.batch_id = n.id AND f.fails_batch OFFSET 0) AS failed,
           n.state = 'closing' AND n.allow_failures AND EXISTS (
               SELECT FROM leafhopper.finished f JOIN leafhopper.outbox o ON o.id = f.call_id
                WHERE f.batch_id = n.id AND f.state <> 'confirmed' AND o.run_when = 'ready') AS has_failures,
           -- Confirmed after the teardown.
           n.state = 'cancelled' AND EXISTS (
               SELECT FROM leafhopper.effect e
                WHERE e.batch_id = n.id
                  AND (e.undone_by = 'row' OR e.undone_by = 'leaf' AND e.leaf = ANY ($5::text[]))) AS undoable,
           -- Whether it has a compensation is not this instance's to say.
           n.state = 'cancelled' AND EXISTS (
               SELECT FROM leafhopper.effect e
                WHERE e.batch_id = n.id AND e.undone_by = 'leaf' AND e.leaf <> ALL ($6::text[])) AS others
      FROM named n
),
decided AS MATERIALIZED (
    SELECT s.*, s.state IN ('succeeded', 'cancelled', 'finished') AS over,
           s.state = 'open' AND NOT s.sealed AND s.has_calls AND NOT s.ready_lives AND NOT s.failed AS idle,
           CASE WHEN s.state IN ('open', 'closing') AND s.failed THEN 'cancelling'
                WHEN s.state = 'open' AND s.sealed AND s.has_calls AND NOT s.ready_lives THEN 'closing'
                WHEN s.state = 'closing' AND s.ready_lives THEN 'open'
                WHEN s.state = 'closing' AND s.has_failures THEN 'finished'
                WHEN s.state = 'closing' THEN 'succeeded'
                WHEN s.state = 'cancelling' AND NOT s.ready_lives THEN 'compensating'
                WHEN s.state = 'cancelled' AND s.undoable THEN 'compensating'
                ELSE s.state END AS next
      FROM seen s
),
moved AS (
    UPDATE leafhopper.batch b
       SET state = d.next,
           changed_at = CASE WHEN d.next <> d.state THEN clock_timestamp() ELSE b.changed_at END,
           idle_since = CASE WHEN d.idle THEN coalesce(b.idle_since, clock_timestamp()) END,
           last_phase_at = CASE WHEN d.over AND d.next = d.state AND NOT d.phase_lives
                                THEN coalesce(b.last_phase_at, clock_timestamp()) ELSE b.last_phase_at END,
           finished_at = CASE WHEN NOT d.over OR d.next <> d.state THEN NULL
                              WHEN d.phase_lives OR d.last_lives OR d.ready_lives THEN b.finished_at
                              ELSE coalesce(b.finished_at, clock_timestamp()) END
      FROM decided d
     WHERE b.id = d.id
       AND (d.next <> d.state OR d.idle <> (d.idle_since IS NOT NULL)
            OR d.over AND d.finished_at IS NULL AND NOT d.phase_lives
               AND (d.last_phase_at IS NULL OR NOT d.last_lives AND NOT d.ready_lives))
),
added AS (
    INSERT INTO leafhopper.batch (id, state)
    SELECT d.id, d.next FROM decided d WHERE NOT d.has_row AND d.next <> 'open'
    ON CONFLICT DO NOTHING
    RETURNING id
),
looked AS (
    SELECT d.* FROM decided d WHERE d.has_row OR d.next = 'open' OR d.id IN (SELECT a.id FROM added a)
),
flagged AS MATERIALIZED (
    -- Somebody's word can be about to take its place, and then wants the batch's row.
    SELECT f.call_id, f.batch_id FROM leafhopper.finished f
     WHERE f.fails_batch AND f.batch_id IN (SELECT l.id FROM looked l WHERE l.next NOT IN ('open', 'closing'))
       FOR UPDATE SKIP LOCKED
),
-- The batch's row says it from here on.
told AS (
    UPDATE leafhopper.finished f SET fails_batch = false FROM flagged g WHERE f.call_id = g.call_id
),
-- Of a batch that somebody holds, one mark stays: the latest. So it does where a call came to a finished batch, until
-- that call is cancelled, where such a row is not told yet, and where another instance has to say whether there is
-- something to undo: nobody walks through those.
forgotten AS (
    DELETE FROM leafhopper.batch_mark m
     USING (SELECT x.id, x.batch_id, max(x.id) OVER (PARTITION BY x.batch_id) AS latest
              FROM unnest($3::int8[], $4::uuid[]) AS x (id, batch_id)) u
     WHERE m.id = u.id
       AND (u.id < u.latest
            OR u.batch_id IN (SELECT l.id FROM looked l
                               WHERE (l.finished_at IS NULL OR NOT (l.ready_lives OR l.phase_lives OR l.last_lives))
                                 AND NOT EXISTS (SELECT FROM leafhopper.finished f
                                                  WHERE f.batch_id = l.id AND f.fails_batch
                                                    AND f.call_id NOT IN (SELECT g.call_id FROM flagged g)
                                                    AND l.next NOT IN ('open', 'closing'))
                                 AND NOT (l.others AND l.next = l.state)))
)
SELECT l.id, l.state AS before, l.next AS state,
       -- Calls that came too late, or whose phase does not come.
       l.next NOT IN ('open', 'closing') AND (l.ready_lives OR l.phase_lives OR l.last_lives) AS may_have_waiting,
       l.over AND l.next = l.state AND (l.phase_lives OR l.last_lives) AS may_release,
       l.others AND l.next = l.state AS others
  FROM looked l
