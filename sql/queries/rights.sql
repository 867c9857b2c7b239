-- What the role that is logged in may not do of these rights, as a GRANT would name it.
-- Caller:      store/roles.rs
-- Index:       catalogue
-- Locks:       none
-- Repeatable:  yes
-- $1 text[] tables, views and sequences   $2 text[] for each, what GRANT grants   $3 text[] functions
WITH wanted AS (
    -- "SELECT, UPDATE (path, body)" is two rights.
    SELECT c.oid, c.relkind, t.name, p.granted, split_part(p.granted, ' ', 1) AS privilege,
           substring(p.granted FROM '\((.*)\)') AS columns
      FROM unnest($1, $2) AS t (name, granted)
      JOIN pg_class c ON c.relname = t.name AND c.relnamespace = 'leafhopper'::regnamespace
     CROSS JOIN LATERAL regexp_split_to_table(t.granted, ', (?![^(]*\))') AS p (granted)
)
SELECT format('%s on %sleafhopper.%s', w.granted, CASE WHEN w.relkind = 'S' THEN 'the sequence ' ELSE '' END, w.name) AS missing
  FROM wanted w
 WHERE CASE WHEN w.relkind = 'S' THEN NOT has_sequence_privilege(w.oid, w.privilege)
            WHEN w.columns IS NULL THEN NOT has_table_privilege(w.oid, w.privilege)
            ELSE EXISTS (SELECT FROM string_to_table(w.columns, ', ') AS s (name)
                          WHERE NOT has_column_privilege(w.oid, s.name, w.privilege)) END
 UNION ALL
SELECT 'EXECUTE on function ' || f.oid::regprocedure
  FROM pg_proc f
 WHERE f.pronamespace = 'leafhopper'::regnamespace AND f.proname = ANY ($3)
   AND NOT has_function_privilege(f.oid, 'EXECUTE')
 UNION ALL
-- The server's own, which everybody may call unless somebody has revoked them.
SELECT 'EXECUTE on function ' || f.name
  FROM unnest('{pg_control_system(),pg_walfile_name(pg_lsn),pg_current_wal_lsn()}'::text[]) AS f (name)
 WHERE NOT has_function_privilege(f.name, 'EXECUTE')
 ORDER BY 1
