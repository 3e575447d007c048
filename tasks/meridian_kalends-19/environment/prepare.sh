#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=952a852c1b78b1499a04f70b9ab244597b671a24

cd /home/kalends
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
gradle --offline --no-daemon testClasses
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
