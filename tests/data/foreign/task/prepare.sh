#!/bin/bash
set -e

cd /home/adder
git reset --hard
bash /home/check_git_changes.sh
git checkout @BASE@
bash /home/check_git_changes.sh

# Once, for the caches.
@COMMAND@ || true
