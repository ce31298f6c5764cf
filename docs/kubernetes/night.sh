#!/bin/sh
# One shard of a suite in a pod of an indexed Job. The shard that ends last joins the records of all, and its exit code is that of
# the suite. Wants NIGHT (the name of the Job), SUITE, SHARDS and JOB_COMPLETION_INDEX (from 0), and the volume at /results. ROWS has
# what the names of rows contain that are run, in words; without it all are run.
set -u
night="${RESULTS:-/results}/$NIGHT"
shard="$night/shard-$JOB_COMPLETION_INDEX"
ended="$night/ended"
mkdir -p "$shard" "$ended"

for row in ${ROWS:-}; do set -- "$@" --filter "$row"; done
harness suite "$SUITE" "$@" --shard "$((JOB_COMPLETION_INDEX + 1))/$SHARDS" --results "$shard"
code=$?
# 4 and more: the pod was interrupted or could not start servers, and Kubernetes may try this shard again
if [ "$code" -ge 4 ]; then exit "$code"; fi

touch "$ended/$JOB_COMPLETION_INDEX"
# two that end at the same moment both see all marks; only one of them makes the folder
if [ "$(ls "$ended" | wc -l)" -eq "$SHARDS" ] && mkdir "$night/joined" 2>/dev/null; then
  exec harness suite --merge "$night"/shard-* --results "$night/joined"
fi
exit "$code"
