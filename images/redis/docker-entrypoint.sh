#!/bin/sh
# As in the official image: arguments that begin with a dash, or a configuration file, are redis-server's.
set -e
case "${1:-}" in
-* | *.conf) set -- redis-server "$@" ;;
esac
exec "$@"
