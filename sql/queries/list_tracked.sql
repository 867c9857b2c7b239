-- Ids of calls by where they stand, a page at a time: from the work in hand, and from what ended without a
-- result. Its cost follows these, never the history of what was confirmed.
-- Caller:      store/operator/list.rs
-- Index:       dispatch_pkey, finished_pkey, finished_state
-- Locks:       none
-- Repeatable:  yes
-- $1 bool whether live calls count   $2 bool whether ended ones do   $3 text state or NULL
-- $4 text leaf or NULL   $5 int8 after this id   $6 bool newest first   $7 int8 at most so many
-- $8 text reason or NULL: that of a pending call is the view's to say
SELECT t.id
  FROM ((SELECT d.call_id AS id FROM leafhopper.dispatch d
          WHERE $1 AND $6 AND d.call_id < $5 AND ($3 IS NULL OR d.state = $3) AND ($4 IS NULL OR d.leaf = $4)
            AND ($8 IS NULL OR d.state = 'pending' OR d.reason = $8)
          ORDER BY d.call_id DESC LIMIT $7)
         UNION ALL
        (SELECT d.call_id FROM leafhopper.dispatch d
          WHERE $1 AND NOT $6 AND d.call_id > $5 AND ($3 IS NULL OR d.state = $3) AND ($4 IS NULL OR d.leaf = $4)
            AND ($8 IS NULL OR d.state = 'pending' OR d.reason = $8)
          ORDER BY d.call_id LIMIT $7)
         UNION ALL
        (SELECT f.call_id FROM leafhopper.finished f
          WHERE $2 AND $6 AND f.call_id < $5 AND f.state <> 'confirmed' AND ($3 IS NULL OR f.state = $3)
            AND ($8 IS NULL OR f.reason = $8)
            AND ($4 IS NULL OR EXISTS (SELECT FROM leafhopper.outbox o WHERE o.id = f.call_id AND o.leaf = $4))
          ORDER BY f.call_id DESC LIMIT $7)
         UNION ALL
        (SELECT f.call_id FROM leafhopper.finished f
          WHERE $2 AND NOT $6 AND f.call_id > $5 AND f.state <> 'confirmed' AND ($3 IS NULL OR f.state = $3)
            AND ($8 IS NULL OR f.reason = $8)
            AND ($4 IS NULL OR EXISTS (SELECT FROM leafhopper.outbox o WHERE o.id = f.call_id AND o.leaf = $4))
          ORDER BY f.call_id LIMIT $7)) t
 ORDER BY CASE WHEN $6 THEN -t.id ELSE t.id END
 LIMIT $7
