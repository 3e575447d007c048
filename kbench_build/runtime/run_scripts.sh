#!/bin/sh
# Runs scripts one after the other, as Harbor runs a solution and then a task's own test.sh: each in
# the image's working directory, an exit code of one of them doesn't stop the next.
#
# Usage: run_scripts.sh <script>…   Leaves the first one's exit code in /logs/agent/exit-code.txt
# when there are several; ends with the last one's.
code=0
count=$#
for script; do
  chmod +x "$script" 2>/dev/null || true
  "$script"
  code=$?
  if [ "$count" -gt 1 ] && [ "$script" = "$1" ]; then
    mkdir -p /logs/agent
    printf '%s\n' "$code" >/logs/agent/exit-code.txt
  fi
done
exit "$code"
