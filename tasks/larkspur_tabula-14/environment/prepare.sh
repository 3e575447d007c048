#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=b2275bd4057b1c4e63de9f7a76a7174a1efe757f

cd /home/tabula
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
bash build.sh compile
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
