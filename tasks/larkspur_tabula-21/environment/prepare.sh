#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=7df3f0e2e21bd657a1c57441252f55e3102b4595

cd /home/tabula
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
mvn --offline --batch-mode --quiet --settings /etc/maven/settings-debian.xml test-compile
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
