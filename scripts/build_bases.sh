#!/usr/bin/env bash
# A door to `doit build_bases` for people used to a script: build_bases.sh [--rebuild]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

case "$#:${1:-}" in
  0:) ;;
  1:--rebuild) ;;
  1:-h | 1:--help)
    say 'usage: scripts/build_bases.sh [--rebuild]'
    exit 0
    ;;
  *) fail "unknown arguments: $* (usage: scripts/build_bases.sh [--rebuild])" ;;
esac

set_up ''
ensure_engine
ensure_base_tools
exec .venv/bin/doit build_bases "$@"
