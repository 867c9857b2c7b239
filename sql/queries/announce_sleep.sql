-- Set the mark "an instance sleeps until this millisecond of the epoch"; never back.
-- Caller:      store/wakeup.rs, from engine/dispatcher.rs
-- Index:       none: a sequence
-- Locks:       none that last: sequences are outside transactions
-- Repeatable:  yes
-- $1 float8 for how long, s
SELECT setval('leafhopper.sleeping_until',
              greatest(m.last_value, ((extract(epoch FROM clock_timestamp()) + $1) * 1000)::int8))
  FROM leafhopper.sleeping_until m
