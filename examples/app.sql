-- The app that all examples are: it sells sites that a hosting API makes. These are its own tables, and its own role
-- makes them.
CREATE TABLE account (
    id     integer PRIMARY KEY,
    credit integer NOT NULL CHECK (credit >= 0)
);
INSERT INTO account (id, credit) VALUES (1, 100);

CREATE TABLE site (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text   NOT NULL,
    status    text   NOT NULL DEFAULT 'requested' CHECK (status IN ('requested', 'live', 'failed')),
    -- The call that makes it, and the batch of that call where it has one.
    call_id   bigint,
    batch_id  uuid,
    -- What the hosting API calls it.
    remote_id text
);
CREATE INDEX site_requested ON site (id) WHERE status = 'requested';

-- What has become of the sites that were requested; NULL while nobody knows. A site of a batch is live when all of the
-- batch is, and failed when all of it is undone.
CREATE VIEW site_outcome AS
SELECT s.id AS site_id, r.body ->> 'id' AS remote_id,
       CASE WHEN s.batch_id IS NOT NULL THEN
                CASE b.state WHEN 'succeeded' THEN 'live' WHEN 'cancelled' THEN 'failed' END
            WHEN c.state = 'confirmed' THEN 'live'
            WHEN c.state IN ('failed', 'cancelled', 'expired') THEN 'failed'
       END AS status
  FROM site s
  JOIN leafhopper.call c ON c.id = s.call_id
  LEFT JOIN leafhopper.batch b ON b.id = s.batch_id
  LEFT JOIN leafhopper.result r ON r.leaf = c.leaf AND r.key = c.key AND r.undone_at IS NULL
 WHERE s.status = 'requested';

-- How far each program that polls the results has come.
CREATE TABLE reader (
    name text   PRIMARY KEY,
    seq  bigint NOT NULL DEFAULT 0
);
