#!/usr/bin/env bash
# The set-up of quickstart.sh, then the linters and every test. Arguments go to pytest:
# `scripts/test.sh -m 'not engine and not dataset and not harbor'` runs the fast ones.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

set_up '[dev]'
ensure_engine
ensure_base_tools
.venv/bin/ruff check
.venv/bin/ruff format --check
.venv/bin/mypy
.venv/bin/pytest "$@"
