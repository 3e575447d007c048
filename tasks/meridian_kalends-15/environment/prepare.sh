#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=bcab2aeb2720063d936877bd16dd1c916d880a12

cd /home/kalends
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
gradle --offline --no-daemon testClasses
bash /opt/kbench/check_git_changes.sh /home/kalends "$BASE"
