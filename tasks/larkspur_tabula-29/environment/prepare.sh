#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=08a8e35c6eac2e30bb00527e87be8dd96f772ced

cd /home/tabula
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
mvn --offline --batch-mode --quiet --settings /etc/maven/settings-debian.xml test-compile
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
