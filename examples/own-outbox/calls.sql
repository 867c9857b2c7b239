-- What the app's events mean as calls: the one place to change. No row for an event that is no call.
-- Both ways need it. Can be run again.
CREATE OR REPLACE FUNCTION outbox_call(kind text, payload jsonb)
RETURNS TABLE (leaf text, method text, path text, body jsonb)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'hosting', 'POST', '/sites', jsonb_build_object('name', payload -> 'name')
     WHERE kind = 'site.requested'
     UNION ALL
    SELECT 'hosting', 'DELETE', '/sites/' || (payload ->> 'remote_id'), NULL
     WHERE kind = 'site.deleted'
$$;
