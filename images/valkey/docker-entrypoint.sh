#!/bin/sh
# As in the official image: arguments that begin with a dash, or a configuration file, are valkey-server's.
set -e
case "${1:-}" in
-* | *.conf) set -- valkey-server "$@" ;;
esac
exec "$@"
