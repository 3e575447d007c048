#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=f9501e1088bf01b9b16f4ae770ce59d539a7b378

cd /home/tabula
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
bash build.sh compile
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
