#!/usr/bin/env bash
# Collects the report files of many modules into one folder, each under a distinct name.
#
#   kotlin_logs_collector.sh CHECKOUT OUTPUT < paths
#
# `paths` are relative to CHECKOUT, each ended by a NUL. The n-th path becomes OUTPUT/<n>-<path>,
# with + for every character that a file name shouldn't have and only the path's end when it is
# long; OUTPUT/index holds "<name> NUL <path> NUL" for each. Only regular files are taken: a
# symbolic link could lead anywhere.
set -euo pipefail

collect() {
  local checkout=$1 output=$2 path name number=0
  mkdir -p -- "$output"
  : >"$output/index"
  while IFS= read -r -d '' path; do
    if [[ -L $checkout/$path || ! -f $checkout/$path ]]; then
      printf 'left out, not a regular file: %q\n' "$path" >&2
      continue
    fi
    number=$((number + 1))
    name=${path//[^A-Za-z0-9._-]/+}
    if ((${#name} > 150)); then name=${name: -150}; fi
    printf -v name '%06d-%s' "$number" "$name"
    cp -- "$checkout/$path" "$output/$name"
    printf '%s\0%s\0' "$name" "$path" >>"$output/index"
  done
}

collect "$1" "$2"
exit
