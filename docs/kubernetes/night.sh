#!/bin/sh
# One pod of an indexed Job: a shard of a suite where SUITE names one, or else a hunt with its own seed. The pod that ends last merges
# the records of all, and its exit code is that of the suite or of all hunts. Wants NIGHT (the name of the Job), SHARDS,
# JOB_COMPLETION_INDEX (from 0), the volume at /results, and
#   SUITE, and ROWS: what the names of rows contain that are run, in words; without it all are run; or
#   HUNT: options of `harness hunt`, in words.
set -u
night="${RESULTS:-/results}/$NIGHT"
shard="$night/shard-$JOB_COMPLETION_INDEX"
ended="$night/ended"
mkdir -p "$shard" "$ended"

if [ -n "${SUITE:-}" ]; then
  for row in ${ROWS:-}; do set -- "$@" --filter "$row"; done
  harness suite "$SUITE" "$@" --shard "$((JOB_COMPLETION_INDEX + 1))/$SHARDS" --results "$shard"
  code=$?
  merge="suite --merge"
else
  harness hunt $HUNT --until end --results "$shard"
  code=$?
  merge="hunt --merge"
fi
# 4 and more: the pod was interrupted or could not start servers, and Kubernetes may try this shard again
if [ "$code" -ge 4 ]; then exit "$code"; fi

touch "$ended/$JOB_COMPLETION_INDEX"
# two that end at the same moment both see all marks; only one of them makes the folder
if [ "$(ls "$ended" | wc -l)" -eq "$SHARDS" ] && mkdir "$night/joined" 2>/dev/null; then
  exec harness $merge "$night"/shard-* --results "$night/joined"
fi
exit "$code"
