#!/bin/sh
# @ABOUT@
# @HINT@
results=$(mktemp -d) || exit
trap 'rm -rf "$results"' EXIT
set -- @WORDS@
client=@CLIENT@; set -- "$@" --client="${LOCK_CLIENT:-$client}"
"${HARNESS:-harness}" "$@" --results "$results"
code=$?
[ $code -ne 3 ] || code=0
exit $code
