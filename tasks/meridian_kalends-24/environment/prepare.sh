#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=0f37ddf8118742c10e5912a75ed9414c3cf1cc55

cd /home/kalends
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
gradle --offline --no-daemon testClasses
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
