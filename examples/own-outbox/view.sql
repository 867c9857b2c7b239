-- The second way: a view takes the place of the app's outbox, and what is inserted into it is a call. There is no
-- second copy of an event. For outboxes of which each event is a call.
--
-- Run by the app's role, after calls.sql, in one transaction (psql -1). Can be run again.
SET lock_timeout = '2s';   -- The rename waits for open transactions that have inserted.

DO $$
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'outbox'::regclass) = 'r' THEN
        ALTER TABLE outbox RENAME TO outbox_before;
    END IF;
END $$;

-- The columns that the app knows; `sent_at` is when the leaf has confirmed. `meta` keeps what the app has written.
CREATE OR REPLACE VIEW outbox AS
SELECT (c.meta ->> 'event')::uuid AS id, c.meta ->> 'kind' AS kind, c.meta -> 'payload' AS payload, c.created_at,
       CASE c.state WHEN 'confirmed' THEN c.finished_at END AS sent_at
  FROM leafhopper.call c WHERE c.meta ? 'event';

-- With the rights of whoever inserts. A row that leafhopper refuses fails the INSERT: there is no other place for it.
CREATE OR REPLACE FUNCTION outbox_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.id := coalesce(NEW.id, gen_random_uuid());
    INSERT INTO leafhopper.outbox (leaf, key, method, path, body, meta)
    SELECT c.leaf, 'event:' || NEW.id, c.method, c.path, c.body,
           jsonb_build_object('event', NEW.id, 'kind', NEW.kind, 'payload', NEW.payload)
      FROM outbox_call(NEW.kind, NEW.payload) c
     WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.leaf = c.leaf AND o.key = 'event:' || NEW.id);
    IF NOT FOUND AND NOT EXISTS (SELECT FROM outbox_call(NEW.kind, NEW.payload)) THEN
        RAISE EXCEPTION 'an event of kind % is no call', NEW.kind
            USING HINT = 'outbox_call() says what the events mean.';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER outbox_insert INSTEAD OF INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_insert();

-- What was not sent when the view came. What is there already is left alone.
INSERT INTO outbox (id, kind, payload)
SELECT e.id, e.kind, e.payload FROM outbox_before e WHERE e.sent_at IS NULL ORDER BY e.created_at, e.id;
