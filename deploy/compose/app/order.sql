BEGIN;
WITH placed AS (
    INSERT INTO orders (item) VALUES ('tea') RETURNING id, item
)
INSERT INTO leafhopper.outbox (leaf, key, path, body)
SELECT 'shop', format('order:%s', id), '/orders', jsonb_build_object('order', id, 'item', item) FROM placed;
COMMIT;
