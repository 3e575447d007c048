#!/usr/bin/env bash
# The set-up of quickstart.sh, then the linters and every test. Arguments go to pytest:
# `scripts/test.sh -m 'not engine and not dataset and not harbor'` runs the fast ones.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

set_up '[dev]'
ensure_engine
ensure_base_tools
# What some tests compare with; without it they are skipped.
for tool in b3sum zstd faketime; do
  command -v "$tool" >/dev/null || ! may_install || install_packages "$tool" || say "no $tool here"
done
.venv/bin/ruff check
.venv/bin/ruff format --check
.venv/bin/mypy
# Two workers: the one that has the engine to itself, and one for what needs none.
.venv/bin/pytest -n 2 --dist loadgroup "$@"
