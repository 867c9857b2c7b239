-- What a live call's row says fits its state.
-- Caller:      leafhopper check, and every test at its end
-- Index:       none: reads all live calls
-- Locks:       none
-- Repeatable:  yes
SELECT d.call_id, d.state, broken.rule
  FROM leafhopper.dispatch d
 CROSS JOIN LATERAL (VALUES
       ('a waiting call is in no doubt', d.state = 'pending' AND d.in_doubt_since IS NOT NULL),
       ('only a call in doubt is to be sent again', d.resend AND d.state <> 'in_doubt'),
       ('a call in doubt was claimed', d.state IN ('in_doubt', 'parked') AND d.first_claimed_at IS NULL
                                      AND (d.undoes IS NULL OR d.state = 'in_doubt')),
       -- A compensation can wait for a person before anything is sent.
       ('a parked call was in doubt', d.state = 'parked' AND d.in_doubt_since IS NULL AND d.undoes IS NULL),
       ('a call under way was claimed', d.state = 'dispatching' AND (d.tries = 0 OR d.first_claimed_at IS NULL)),
       ('attempts are spent by claims', d.attempts > d.tries OR d.crashes > d.tries),
       ('a follow-up belongs to a batch', d.run_when <> 'ready' AND d.batch_id IS NULL),
       ('an infinite deadline is none', d.deadline = 'infinity')) AS broken (rule, holds)
 WHERE broken.holds
