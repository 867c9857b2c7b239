-- Take back the mark "an instance sleeps": inserts notify nobody until it is set again.
-- Caller:      store/wakeup.rs, from engine/dispatcher.rs; by whoever is busy, also where another one sleeps: that one
--              polls, and sets the mark when its own runs out
-- Index:       none: a sequence
-- Locks:       none that last: sequences are outside transactions
-- Repeatable:  yes
SELECT setval('leafhopper.sleeping_until', 1)
