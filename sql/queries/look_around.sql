-- Which loops have something to do: one look for all of them. It may say too much, never too little: whoever is told looks
-- by a statement of its own.
-- Caller:      store/look.rs, from engine/lookout.rs
-- Index:       dispatch_fresh, dispatch_timed, dispatch_doubt, dispatch_ends, dispatch_arrived, dispatch_held_order,
--              dispatch_held_key, batch_mark_pkey, batch_unfinished, job_running: the first entry of each
-- Locks:       none that last: sequences are outside transactions
-- Repeatable:  yes
-- $1 text[] leaves   $2 float8 for how long the mark "an instance sleeps" is renewed, s, or NULL
-- Not EXISTS, which drops an ORDER BY: that keeps each at the first entry of its index, however many rows match. The time
-- is that of the statement: an index does not look for one that changes while it runs.
WITH first AS MATERIALIZED (
    SELECT w.leaf, fresh.priority, fresh.call_id, timed.due
      FROM unnest($1::text[]) AS w (leaf)
      LEFT JOIN LATERAL (
           SELECT d.priority, d.call_id FROM leafhopper.dispatch d
            WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at IS NULL
            ORDER BY d.priority, d.call_id LIMIT 1) fresh ON true
      LEFT JOIN LATERAL (
           SELECT date_part('epoch', d.due_at) AS due FROM leafhopper.dispatch d
            WHERE d.leaf = w.leaf AND d.state = 'pending' AND d.held IS NULL AND d.due_at <= statement_timestamp()
            ORDER BY d.due_at LIMIT 1) timed ON true
     WHERE (fresh.call_id IS NOT NULL OR timed.due IS NOT NULL)
       AND NOT EXISTS (SELECT FROM leafhopper.leaf_control c WHERE c.leaf = w.leaf AND c.paused)
)
-- Of each leaf with calls that may be claimed, the first in each of the claim's indexes.
SELECT ARRAY(SELECT f.leaf FROM first f ORDER BY f.leaf) AS work,
       ARRAY(SELECT f.priority FROM first f ORDER BY f.leaf) AS first_priority,
       ARRAY(SELECT f.call_id FROM first f ORDER BY f.leaf) AS first_call,
       ARRAY(SELECT f.due FROM first f ORDER BY f.leaf) AS first_due,
       EXISTS (
           SELECT FROM unnest($1::text[]) AS w (leaf)
            CROSS JOIN LATERAL (
               SELECT FROM leafhopper.dispatch d
                WHERE d.leaf = w.leaf AND d.state = 'in_doubt' AND d.due_at <= statement_timestamp()
                ORDER BY d.due_at LIMIT 1) due) AS doubts,
       (SELECT d.call_id FROM leafhopper.dispatch d
         WHERE d.state = 'pending' AND (d.deadline IS NOT NULL OR d.give_up_at IS NOT NULL)
           AND least(d.deadline, d.give_up_at) <= statement_timestamp()
         ORDER BY least(d.deadline, d.give_up_at) LIMIT 1) IS NOT NULL AS ends,
       coalesce(
           (SELECT d.call_id FROM leafhopper.dispatch d WHERE d.held = 'arrived' ORDER BY d.call_id LIMIT 1),
           (SELECT d.call_id FROM leafhopper.dispatch d
             WHERE d.held = 'order' ORDER BY d.leaf, d.ordering_key, d.call_id LIMIT 1),
           (SELECT d.call_id FROM leafhopper.dispatch d WHERE d.held = 'key' ORDER BY d.leaf, d.key LIMIT 1)
       ) IS NOT NULL AS held,
       coalesce(
           (SELECT m.batch_id FROM leafhopper.batch_mark m ORDER BY m.id LIMIT 1),
           (SELECT b.id FROM leafhopper.batch b
             WHERE b.state <> 'open' AND b.finished_at IS NULL ORDER BY b.id LIMIT 1)
       ) IS NOT NULL AS batches,
       (SELECT j.id FROM leafhopper.job j WHERE j.state = 'running' ORDER BY j.id LIMIT 1) IS NOT NULL AS jobs,
       -- When a person last said of a leaf that it is well again, in seconds of the epoch.
       ARRAY(SELECT c.leaf FROM leafhopper.leaf_control c WHERE c.resumed_at IS NOT NULL ORDER BY c.leaf) AS resumed,
       ARRAY(SELECT extract(epoch FROM c.resumed_at)::float8 FROM leafhopper.leaf_control c
              WHERE c.resumed_at IS NOT NULL ORDER BY c.leaf) AS resumed_at,
       -- Whether the database is not the one that it was, or a change was written down: as identity.sql.
       EXISTS (
           SELECT FROM leafhopper.origin g
            WHERE g.changed_at IS NOT NULL
               OR (g.system_identifier, g.timeline, g.database_name, g.database_oid) IS DISTINCT FROM (
                   (SELECT s.system_identifier FROM pg_control_system() s),
                   ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int4,
                   current_database()::text,
                   (SELECT d.oid::int8 FROM pg_database d WHERE d.datname = current_database()))) AS another_database,
       -- As announce_sleep.sql.
       (SELECT setval('leafhopper.sleeping_until',
                      greatest(m.last_value, ((extract(epoch FROM clock_timestamp()) + $2) * 1000)::int8))
          FROM leafhopper.sleeping_until m WHERE $2 IS NOT NULL) AS sleeping_until
