#!/bin/sh
# As in the official image: the first start makes the data, POSTGRES_HOST_AUTH_METHOD says how clients from elsewhere log in,
# and the server is not root's.
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
as="setpriv --reuid=postgres --regid=postgres --clear-groups --"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  mkdir -p "$PGDATA" /var/run/postgresql
  chown postgres:postgres "$PGDATA" /var/run/postgresql
  chmod 700 "$PGDATA"
  $as initdb --username=postgres --auth=trust --encoding=UTF8 --no-locale --no-sync
  echo "host all all all ${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"
fi
exec $as "$@"
