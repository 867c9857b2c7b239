-- The first way: a trigger on the app's own outbox forwards each event, in the transaction that inserts it.
--
-- Run by the app's role, after calls.sql. Can be run again. Whoever inserts events needs the rights of
-- `leafhopper migrate --grant-app ROLE`, and nothing else.
SET lock_timeout = '2s';   -- CREATE TRIGGER waits for open transactions that have inserted; try again, if it takes too long.

-- Events that make no call: leafhopper has refused the row.
CREATE TABLE IF NOT EXISTS outbox_refused (
    event_id   uuid        PRIMARY KEY,
    error      text        NOT NULL,
    refused_at timestamptz NOT NULL DEFAULT now()
);

-- Forwards one event, unless it has been forwarded. A row that leafhopper refuses is kept in outbox_refused: the app, which
-- knows nothing of calls, goes on. (Any other error is the app's: it has no rights, the connection is gone …)
CREATE OR REPLACE FUNCTION outbox_forward(event outbox) RETURNS text
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    refusal text;
BEGIN
    INSERT INTO leafhopper.outbox (leaf, key, method, path, body)
    SELECT c.leaf, 'event:' || event.id, c.method, c.path, c.body FROM outbox_call(event.kind, event.payload) c
     WHERE NOT EXISTS (SELECT FROM leafhopper.outbox o WHERE o.leaf = c.leaf AND o.key = 'event:' || event.id);
    DELETE FROM outbox_refused WHERE event_id = event.id;
    RETURN 'forwarded';
EXCEPTION WHEN integrity_constraint_violation OR data_exception THEN
    GET STACKED DIAGNOSTICS refusal = MESSAGE_TEXT;
    INSERT INTO outbox_refused (event_id, error) VALUES (event.id, refusal)
    ON CONFLICT (event_id) DO UPDATE SET error = excluded.error, refused_at = now();
    RETURN 'refused';
END $$;

-- All events of a statement at once; one by one only where a row of them is refused.
CREATE OR REPLACE FUNCTION outbox_inserted() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO leafhopper.outbox (leaf, key, method, path, body)
    SELECT c.leaf, 'event:' || i.id, c.method, c.path, c.body
      FROM inserted i CROSS JOIN LATERAL outbox_call(i.kind, i.payload) c ORDER BY i.created_at, i.id;
    RETURN NULL;
EXCEPTION WHEN integrity_constraint_violation OR data_exception THEN
    PERFORM outbox_forward(e) FROM outbox e JOIN inserted i ON i.id = e.id;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER outbox_inserted AFTER INSERT ON outbox
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION outbox_inserted();
