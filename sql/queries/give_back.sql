-- Give back this instance's claims that it does not hold: the commit's reply was lost, so nothing was sent.
-- Caller:      store/claim.rs, from engine/reclaimer.rs (again and again: a lost statement may commit late)
--              and from engine/dispatcher.rs for what a stop left unsent
-- Index:       dispatch_one_at_a_time (its predicate covers the state)
-- Locks:       the given-back rows
-- Repeatable:  yes
-- $1 uuid instance   $2 int8 the last round that was begun before the held calls were listed
-- $3 int8[] rounds still being claimed   $4 int8[] held calls
UPDATE leafhopper.dispatch d
   SET state = CASE WHEN d.in_doubt_since IS NULL THEN 'pending' ELSE 'in_doubt' END,
       resend = false,
       due_at = CASE WHEN d.in_doubt_since IS NULL THEN d.due_at ELSE clock_timestamp() END,
       tries = d.tries - 1,
       first_claimed_at = CASE WHEN d.tries = 1 THEN NULL ELSE d.first_claimed_at END,
       give_up_at = CASE WHEN d.tries = 1 THEN NULL ELSE d.give_up_at END
 WHERE d.state = 'dispatching' AND d.instance = $1 AND d.round <= $2
   AND d.round <> ALL ($3::int8[]) AND d.call_id <> ALL ($4::int8[])
RETURNING d.call_id
