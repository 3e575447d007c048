#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=26781a11029899a62d0f8b9723f9946a58975fba

cd /home/kalends
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
gradle --offline --no-daemon testClasses
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
