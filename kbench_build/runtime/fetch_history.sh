#!/usr/bin/env bash
# Writes a git bundle of what one commit of a repository reaches, and nothing else, to $KBENCH_OUTPUT.
#
#   fetch_history.sh <address of the repository> <commit id>
#
# Its one ref is refs/heads/main. Needs bash, git and whatever network the address needs; no
# configuration of whoever runs it is read.
set -euo pipefail

fail() {
    printf 'fetch_history.sh: %s\n' "$1" >&2
    exit 2
}

[ $# -eq 2 ] || fail "usage: fetch_history.sh <address> <commit id>"
[[ $2 =~ ^([0-9a-f]{40}|[0-9a-f]{64})$ ]] || fail "not a full commit id: '$2'"
[ -n "${KBENCH_OUTPUT:-}" ] || fail "say where to write to: \$KBENCH_OUTPUT"

SCRATCH=$(mktemp -d)
trap 'rm -rf -- "$SCRATCH"' EXIT
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 \
    GIT_ALLOW_PROTOCOL=file:git:http:https:ssh
FORMAT=sha1
[ "${#2}" -eq 40 ] || FORMAT=sha256

git init --quiet --bare --template= --object-format="$FORMAT" "$SCRATCH"
cd "$SCRATCH"
# A server that hands out branches only is asked for all of them.
git fetch --quiet --no-tags --end-of-options "$1" "$2" ||
    git fetch --quiet --no-tags --end-of-options "$1" '+refs/heads/*:refs/upstream/*'
git update-ref refs/heads/main "$2"
git bundle create --quiet "$KBENCH_OUTPUT" refs/heads/main
