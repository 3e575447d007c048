#!/usr/bin/env bash
# Grades the checkout: the entry point of the verifier, the same bytes in every task.
#
# Writes a reward of 0 and a report that says "did not finish" before anything else, checks its
# tools, then hands over to verify_checkout.py in a clean environment. Ends with 0 only when the
# reward was written as the very last act; a runner should believe no reward after another exit.
#
# Everything runs inside one group, so that bash has read all of it before the first command: a
# change to this file while it runs has no effect.
set -euo pipefail

{
  PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin
  umask 022
  logs=/logs/verifier
  tests=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

  # $1: outcome kind, $2: one line without quotes or backslashes.
  report() {
    printf '{"version": 1, "reward": 0, "outcome": "verifier-error", "errors": [{"kind": "%s", "message": "%s"}], "command": null, "reports": [], "tests": {}, "counts": {}, "flaky": [], "missing": [], "failed": []}\n' \
      "$1" "$2" >"$logs/report.json"
  }

  give_up() {
    report tools "$1"
    printf 'verifier: %s\n' "$1" >&2 || true
    exit 1
  }

  if [[ -L $logs || ! -d $logs ]]; then
    rm -rf -- "$logs"
    mkdir -p -- "$logs"
  fi
  rm -rf -- "$logs/reward.txt" "$logs/reward.json" "$logs/report.json"
  printf '0\n' >"$logs/reward.txt"
  report unfinished "the verifier did not finish"

  for tool in python3 git; do
    command -v "$tool" >/dev/null || give_up "$tool is missing from the image"
  done
  clean=(env -i "PATH=$PATH" LANG=C.UTF-8 LC_ALL=C.UTF-8 python3 -I -S -B)
  "${clean[@]}" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    give_up "python3 does not start, or is older than 3.8"
  "${clean[@]}" -c 'import json, shutil, subprocess, tarfile, xml.parsers.expat' 2>/dev/null ||
    give_up "python3 lacks its standard library (a minimal package?)"

  exec "${clean[@]}" "$tests/verify_checkout.py" "$tests" "$logs"
}
