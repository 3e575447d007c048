#!/bin/bash
# Removes what came after the commit that is checked out: branches, tags, remotes and logs.
set -e

cd "$1"
git checkout -B main
git for-each-ref --format='%(refname)' refs/heads refs/tags refs/remotes |
    grep -v '^refs/heads/main$' | xargs -r -n 1 git update-ref -d
git remote remove origin || true
git reflog expire --expire=now --all
git gc --prune=now --quiet
