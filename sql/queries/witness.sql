-- Does the database still hold what this instance was told that it committed?
-- Caller:      store/origin.rs, after a reconnect
-- Index:       instance_pkey, dispatch_pkey, outbox_pkey, setting_pkey
-- Locks:       none
-- Repeatable:  yes
-- $1 uuid instance   $2 int8[] held calls   $3 int8[] their rounds
-- Claims that others took over are not lost: they stay on the row, or left a later claim, an end, a result.
SELECT (SELECT i.beat FROM leafhopper.instance i WHERE i.id = $1) AS beat,
       (SELECT count(*) FROM unnest($2::int8[], $3::int8[]) AS h (call_id, round)
          JOIN leafhopper.dispatch d ON d.call_id = h.call_id AND d.tries = 0) AS unclaimed,
       (SELECT count(*) FROM unnest($2::int8[], $3::int8[]) AS h (call_id, round)
         WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.id = h.call_id)
           -- What was taken over, has ended and was pruned since is not lost.
           AND NOT EXISTS (SELECT FROM leafhopper.setting s
                            WHERE s.name = 'calls_pruned_to' AND s.value::int8 >= h.call_id)) AS missing
