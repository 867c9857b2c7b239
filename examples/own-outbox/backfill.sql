-- Forwards what was not sent when the trigger came: a thousand events, the oldest first. Again, until it gives no row.
-- What was forwarded or refused before is left alone, so it can be ended and begun again at any time.
SELECT outbox_forward(e)
  FROM (SELECT e.* FROM outbox e
         WHERE e.sent_at IS NULL
           AND EXISTS (SELECT FROM outbox_call(e.kind, e.payload) c
                        WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o
                                           WHERE o.leaf = c.leaf AND o.key = 'event:' || e.id))
           AND NOT EXISTS (SELECT FROM outbox_refused r WHERE r.event_id = e.id)
         ORDER BY e.created_at, e.id LIMIT 1000) e;
