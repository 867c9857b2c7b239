-- The GRANT statements for an app's role; none where there is no such role.
-- Caller:      store/roles.rs, from migrate --grant-app
-- Index:       catalogue
-- Locks:       none
-- Repeatable:  yes
-- $1 text role   $2 text[] functions of the contract
SELECT s.statement
  FROM pg_roles r
 CROSS JOIN LATERAL (
    SELECT 1 AS place, format('GRANT USAGE ON SCHEMA leafhopper TO %I', r.rolname) AS statement
     UNION ALL
    -- Every column but the sidecar's own.
    SELECT 2, format('GRANT INSERT (%s), SELECT ON leafhopper.outbox TO %I',
                     (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
                       WHERE a.attrelid = 'leafhopper.outbox'::regclass AND a.attnum > 0 AND NOT a.attisdropped
                         AND a.attname NOT IN ('undoes', 'created_at')), r.rolname)
     UNION ALL
    SELECT 3, format('GRANT INSERT (id, name, allow_failures, sealed, undo_order), SELECT ON leafhopper.batch TO %I', r.rolname)
     UNION ALL
    SELECT 4, format('GRANT SELECT ON leafhopper.call, leafhopper.result TO %I', r.rolname)
     UNION ALL
    SELECT 5, format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure, r.rolname)
      FROM pg_proc p WHERE p.pronamespace = 'leafhopper'::regnamespace AND p.proname = ANY ($2)
 ) s
 WHERE r.rolname = $1
 ORDER BY s.place, s.statement
