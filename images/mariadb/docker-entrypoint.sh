#!/bin/sh
# As in the official image: the first start makes the data, MARIADB_ALLOW_EMPTY_ROOT_PASSWORD lets root log in from anywhere, and
# the server is not root's.
set -e
data=/var/lib/mysql
as="setpriv --reuid=mysql --regid=mysql --clear-groups --"
mkdir -p "$data" /run/mysqld
chown mysql:mysql /run/mysqld
if [ ! -e "$data/users.sql" ]; then
  chown mysql:mysql "$data"
  $as mariadb-install-db --no-defaults --datadir="$data" --auth-root-authentication-method=normal --skip-test-db \
    --skip-name-resolve --debug-no-sync --innodb-log-file-size=8M --innodb-autoextend-increment=1
  # a statement a line
  {
    if [ -n "$MARIADB_ALLOW_EMPTY_ROOT_PASSWORD" ]; then
      echo "CREATE USER IF NOT EXISTS root@'%';"
      echo "GRANT ALL PRIVILEGES ON *.* TO root@'%' WITH GRANT OPTION;"
    fi
  } | $as tee "$data/users.sql" >/dev/null
fi
server=$1
shift
exec $as "$server" --no-defaults --datadir="$data" --init-file="$data/users.sql" "$@"
