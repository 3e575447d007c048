#!/bin/sh
# Runs a command while busy loops compete with it for the container's CPUs.
#
# Usage: run_loaded.sh <loops> <command>…   Ends with the command's exit code. A loop ends with this
# shell: by its own hand a moment after the shell is gone, whatever ended it.
loops=$1
shift

busy() {
  while kill -0 $$ 2>/dev/null; do
    count=0
    while [ "$count" -lt 20000 ]; do
      count=$((count + 1))
    done
  done
}

pids=
while [ "$loops" -gt 0 ]; do
  busy </dev/null >/dev/null 2>&1 &
  pids="$pids $!"
  loops=$((loops - 1))
done
"$@"
code=$?
# A list of ids.
# shellcheck disable=SC2086
kill $pids 2>/dev/null
exit "$code"
