-- How many calls each leaf confirmed lately, in a minute: of the last minute, or of the latest so many results where
-- they are younger.
-- Caller:      store/operator/watch.rs, at most once in a second
-- Index:       result_seq
-- Locks:       none
-- Repeatable:  yes
-- $1 int8 at most so many results
WITH latest AS MATERIALIZED (
    SELECT r.leaf, r.confirmed_at FROM leafhopper.result r ORDER BY r.seq DESC LIMIT $1
),
span AS MATERIALIZED (
    SELECT CASE WHEN count(*) < $1 THEN interval '1 minute'
                ELSE greatest(least(now() - min(l.confirmed_at), interval '1 minute'), interval '1 second') END AS span
      FROM latest l
)
SELECT l.leaf, (count(*) * 60 / extract(epoch FROM s.span))::float8 AS per_minute
  FROM latest l, span s
 WHERE l.confirmed_at > now() - s.span
 GROUP BY l.leaf, s.span
