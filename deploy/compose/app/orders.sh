#!/bin/bash
# An app: every few seconds an order of its own, and in the same transaction the call that tells the shop.
set -euo pipefail

PGPASSWORD=$(cat "${PASSWORD_FILE:-/run/secrets/app_password}")
export PGPASSWORD PGHOST=${PGHOST:-database} PGUSER=${PGUSER:-app} PGDATABASE=${PGDATABASE:-app}

while true; do
  psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --file "$(dirname "$0")/order.sql" || true
  sleep "${PAUSE:-3}"
done
