#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=199b7925ffaf8767b945f92fd8bd10d4b3d83d68

cd /home/kalends
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
gradle --offline --no-daemon testClasses
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
