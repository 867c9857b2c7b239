#!/bin/sh
# Makes the passwords that compose.yaml names, as files in ./secrets. Those that are there already stay.
set -eu
cd "$(dirname "$0")"

# Nobody but you gets into the folder. The files themselves are readable, because compose mounts them with the rights
# that they have here, for users that are not you.
umask 022
mkdir -p secrets
chmod 700 secrets

make() { [ -s "secrets/$1" ] || printf %s "$2" >"secrets/$1"; }
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

for name in postgres_password owner_password sidecar_password app_password admin_token grafana_password; do
  make "$name" "$(random)"
done
make owner_url "postgres://owner:$(cat secrets/owner_password)@database/app"
make database_url "postgres://sidecar:$(cat secrets/sidecar_password)@database/app"
