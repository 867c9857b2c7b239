-- Reacts in the database: the app's own trigger on the results, for apps without a process that could wait.
--
-- It runs inside the sidecar's transaction that records the leaf's word. So it does one quick thing, to a row that it
-- finds by its key: an error of it keeps that word from being recorded until it works (`leafhopper run` logs it, and
-- /readyz says so), and so does a lock that it would have to wait for.

-- Run by the app's role: the function has the rights of that role, whoever records.
CREATE OR REPLACE FUNCTION site_result() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    of_site CONSTANT bigint NOT NULL := split_part(NEW.key, ':', 2)::bigint;
BEGIN
    IF NEW.undone_at IS NULL THEN
        UPDATE site SET status = 'live', remote_id = NEW.body ->> 'id' WHERE id = of_site AND status = 'requested';
    ELSE
        UPDATE site SET status = 'failed' WHERE id = of_site;
    END IF;
    RETURN NULL;
END $$;

-- It is for the results alone. 2-owner.sql needs the right to it where that is not run by a superuser:
-- GRANT EXECUTE ON FUNCTION site_result() TO the_role_that_migrates;
REVOKE EXECUTE ON FUNCTION site_result() FROM PUBLIC;
