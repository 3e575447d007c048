#!/usr/bin/env bash
# Checks the base out and builds it once; before and after that, the tree is the base's exactly.
set -euo pipefail

readonly BASE=e8f30e1903a39e12f20cba4456a95b68e1e9e271

cd /home/tabula
git reset --quiet --hard "$BASE"
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
mvn --offline --batch-mode --quiet --settings /etc/maven/settings-debian.xml test-compile
bash /opt/kbench/check_git_changes.sh /home/tabula "$BASE"
