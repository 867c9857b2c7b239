-- What the role may not do of what a sidecar does.
-- Caller:      store/operator/health.rs
-- Index:       catalogue
-- Locks:       none
-- Repeatable:  yes
SELECT format('%s on leafhopper.%s', p.privilege, t.name) AS missing
  FROM (VALUES ('outbox')) AS t (name)
 CROSS JOIN unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS p (privilege)
 WHERE NOT has_table_privilege('leafhopper.' || t.name, p.privilege)
 UNION ALL
SELECT format('%s on leafhopper.%s', p.privilege, t.name)
  FROM unnest('{dispatch,finished,result,attempt,batch,batch_mark,instance,leaf_control,order_hold,operator_action,job,origin,setting}'::text[]) AS t (name)
 CROSS JOIN unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS p (privilege)
 WHERE NOT has_table_privilege('leafhopper.' || t.name, p.privilege)
 UNION ALL
SELECT format('SELECT on leafhopper.%s', v.name)
  FROM unnest('{call,effect}'::text[]) AS v (name)
 WHERE NOT has_table_privilege('leafhopper.' || v.name, 'SELECT')
 UNION ALL
SELECT 'UPDATE on the sequence leafhopper.sleeping_until'
 WHERE NOT has_sequence_privilege('leafhopper.sleeping_until', 'UPDATE')
 UNION ALL
SELECT 'EXECUTE on function ' || f.oid::regprocedure
  FROM pg_proc f
 WHERE f.pronamespace = 'leafhopper'::regnamespace AND f.prorettype <> 'trigger'::regtype
   AND NOT has_function_privilege(f.oid, 'EXECUTE')
 UNION ALL
SELECT 'EXECUTE on function ' || f.name
  FROM unnest('{pg_control_system(),pg_walfile_name(pg_lsn),pg_current_wal_lsn()}'::text[]) AS f (name)
 WHERE NOT has_function_privilege(f.name, 'EXECUTE')
