#!/usr/bin/env bash
# From a fresh clone to a verified release of the shipped dataset. Run again, it has nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

set_up ''
ensure_engine
ensure_base_tools
.venv/bin/doit -n "$(jobs)" release
.venv/bin/kbench verify
