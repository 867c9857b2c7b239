#!/bin/bash
# Run once by the image of PostgreSQL, as it makes its cluster: the roles of the schema's owner, of the sidecar and of the app.
set -euo pipefail

secrets=${SECRETS:-/run/secrets}
psql --username postgres --dbname app --set ON_ERROR_STOP=1 --quiet \
  --set owner="$(cat "$secrets/owner_password")" --set sidecar="$(cat "$secrets/sidecar_password")" --set app="$(cat "$secrets/app_password")" <<'SQL'
CREATE ROLE owner LOGIN PASSWORD :'owner';
CREATE ROLE sidecar LOGIN PASSWORD :'sidecar';
CREATE ROLE app LOGIN PASSWORD :'app';
-- It owns the schema "leafhopper", and nothing else; what sidecar and app may do there, `leafhopper migrate` grants.
GRANT CREATE ON DATABASE app TO owner;
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL, ordered_at timestamptz DEFAULT now());
GRANT SELECT, INSERT ON orders TO app;
SQL
