-- Run by the role that owns the schema leafhopper: the one that `leafhopper migrate` runs as.
-- The condition keeps the function from keys that it can't read; a compensation's key (site:42:undo:1) is none of its.
-- It waits for transactions that record; those that come behind it wait for it, so not for long.
SET lock_timeout = '2s';
CREATE OR REPLACE TRIGGER site_result AFTER INSERT OR UPDATE OF undone_at ON leafhopper.result
    FOR EACH ROW WHEN (NEW.leaf = 'hosting' AND NEW.key ~ '^site:[0-9]{1,18}$')
    EXECUTE FUNCTION public.site_result();
