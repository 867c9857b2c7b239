-- The GRANT statements for a role that is to have these rights; none where there is no such role.
-- Caller:      store/roles.rs, from migrate --grant-sidecar, --grant-operator, --grant-readonly
-- Index:       catalogue
-- Locks:       none
-- Repeatable:  yes
-- $1 text role   $2 text[] tables, views and sequences   $3 text[] for each, what GRANT grants   $4 text[] functions
SELECT s.statement
  FROM pg_roles r
 CROSS JOIN LATERAL (
    SELECT 1 AS place, format('GRANT USAGE ON SCHEMA leafhopper TO %I', r.rolname) AS statement
     UNION ALL
    SELECT 2, format('GRANT %s ON %sleafhopper.%I TO %I', t.granted,
                     CASE WHEN c.relkind = 'S' THEN 'SEQUENCE ' ELSE '' END, t.name, r.rolname)
      FROM unnest($2, $3) AS t (name, granted)
      JOIN pg_class c ON c.relname = t.name AND c.relnamespace = 'leafhopper'::regnamespace
     UNION ALL
    SELECT 3, format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure, r.rolname)
      FROM pg_proc p WHERE p.pronamespace = 'leafhopper'::regnamespace AND p.proname = ANY ($4)
 ) s
 WHERE r.rolname = $1
 ORDER BY s.place, s.statement
