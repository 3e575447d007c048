#!/usr/bin/env bash
# Grades the checkout: the entry point of the verifier, the same bytes in every task.
#
# Ends what an agent left running, writes a reward of 0 and a report that says "did not finish",
# checks its tools, then hands over to verify_checkout.py in a clean environment. Ends with 0 only
# when the reward was written as the very last act; a runner should believe no reward after another
# exit.
#
# Everything runs inside one group, so that bash has read all of it before the first command: a
# change to this file while it runs has no effect.
set -uo pipefail

{
  PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin
  umask 022
  logs=/logs/verifier
  tests=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

  # Sets state, parent and session of process $1. A process chooses its own name, so the fields are
  # counted from the last parenthesis.
  look_at() {
    local text
    { text=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    text=${text##*) }
    state=${text%% *} text=${text#* }
    parent=${text%% *} text=${text#* }
    text=${text#* }
    session=${text%% *}
  }

  # verify_checkout.py does the same again, and fails when it can't. It is done here as well so that
  # a reward of 0 stays one where there is no python3.
  end_strays() {
    local state parent session folder pid found ours=" 0 " sessions=" " at=$$
    while [[ $ours != *" $at "* ]] && look_at "$at"; do
      ours+="$at "
      at=$parent
    done
    for at in 1 $$; do look_at "$at" && sessions+="$session "; done
    for _ in {1..40}; do
      found=()
      for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        if look_at "$pid" && [[ $state != [ZX] && $ours != *" $pid "* &&
          $sessions != *" $session "* ]]; then
          found+=("$pid")
        fi
      done
      if ((${#found[@]} == 0)); then return; fi
      kill -STOP "${found[@]}" 2>/dev/null
      kill -KILL "${found[@]}" 2>/dev/null
      sleep 0.05
    done
  }

  # $1: kind of error, $2: one line without quotes or backslashes.
  report() {
    printf '{"version": 1, "reward": 0, "outcome": "verifier-error", "errors": [{"kind": "%s", "message": "%s"}], "command": null, "reports": [], "tests": {}, "counts": {}, "flaky": [], "missing": [], "failed": [], "quarantined": []}\n' \
      "$1" "$2" >"$logs/report.json"
  }

  give_up() {
    report "${2:-tools}" "$1"
    printf 'verifier: %s\n' "$1" >&2
    exit 1
  }

  end_strays
  if [[ -L $logs || ! -d $logs ]]; then
    rm -rf -- "$logs"
    mkdir -p -- "$logs"
  fi
  rm -rf -- "$logs/reward.txt" "$logs/reward.json" "$logs/report.json"
  printf '0\n' >"$logs/reward.txt" || exit 1
  report unfinished "the verifier did not finish"

  for tool in python3 git; do
    command -v "$tool" >/dev/null || give_up "$tool is missing from the image"
  done
  clean=(env -i "PATH=$PATH" LANG=C.UTF-8 LC_ALL=C.UTF-8 python3 -I -S -B)
  "${clean[@]}" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    give_up "python3 does not start, or is older than 3.8"
  "${clean[@]}" -c 'import json, shutil, subprocess, tarfile, xml.parsers.expat' 2>/dev/null ||
    give_up "python3 lacks its standard library (a minimal package?)"
  [[ -f $tests/verify_checkout.py ]] || give_up "verify_checkout.py is missing" data

  exec "${clean[@]}" "$tests/verify_checkout.py" "$tests" "$logs"
}
