-- An ordering key is held only behind a call that ended without a confirmation.
-- Caller:      leafhopper check, and every test at its end
-- Index:       finished_pkey; reads all holds
-- Locks:       none
-- Repeatable:  yes
SELECT h.leaf, h.ordering_key, h.head
  FROM leafhopper.order_hold h
 WHERE NOT EXISTS (SELECT FROM leafhopper.finished f
                    WHERE f.call_id = h.head AND f.state IN ('failed', 'cancelled', 'expired'))
