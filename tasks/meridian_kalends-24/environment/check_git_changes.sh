#!/usr/bin/env bash
# Asserts that a checkout is exactly one commit: HEAD is it, and no file differs from it or is extra.
#
#   check_git_changes.sh <checkout> <commit id>
#
# Files are compared with an index made anew, so flags and remembered times in the checkout's own index
# hide nothing. Ignored files may be there, by the checkout's own .gitignore files only. Exits with 0
# when clean, with 1 and the list of changes when not, with 2 for a wrong call.
#
# Needs bash and git 2.30 or newer.
set -euo pipefail

fail() {
    printf 'check_git_changes.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

forget_environment() {
    local name
    for name in $(compgen -e GIT_ || true); do
        unset "$name"
    done
    # Git before 2.32 knows no GIT_CONFIG_GLOBAL: there an empty home serves.
    export HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent
    export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 \
        GIT_NO_REPLACE_OBJECTS=1 GIT_OPTIONAL_LOCKS=0 LC_ALL=C
}

# git on the checkout, whoever owns it, without what its configuration could run or hide.
checkout_git() {
    git --git-dir="$CHECKOUT/.git" --work-tree="$CHECKOUT" \
        -c core.fsmonitor=false -c core.untrackedCache=false -c core.excludesFile=/dev/null \
        -c core.hooksPath=/dev/null "$@"
}

list_changes() {
    checkout_git read-tree "$COMMIT"
    checkout_git update-index -q --refresh >/dev/null || true
    checkout_git diff-files --name-status --ignore-submodules=all
    checkout_git ls-files --others --exclude-per-directory=.gitignore | sed 's/^/?\t/'
}

main() {
    local head changes
    [ $# -eq 2 ] || fail "usage: check_git_changes.sh <checkout> <commit id>" 2
    [[ $2 =~ ^([0-9a-f]{40}|[0-9a-f]{64})$ ]] || fail "not a full commit id: '$2'" 2
    COMMIT=$2
    CHECKOUT=$(cd -- "$1" 2>/dev/null && pwd -P) || fail "no such folder: $1" 2
    [ -e "$CHECKOUT/.git" ] || fail "not the top of a git checkout (there is no .git): $CHECKOUT" 2
    forget_environment
    head=$(checkout_git rev-parse --verify --quiet 'HEAD^{commit}') || fail "HEAD of $CHECKOUT is no commit"
    [ "$head" = "$COMMIT" ] || fail "HEAD of $CHECKOUT is $head, not $COMMIT"
    SCRATCH=$(mktemp -d)
    trap 'rm -rf -- "$SCRATCH"' EXIT
    export GIT_INDEX_FILE=$SCRATCH/index
    changes=$(list_changes) || fail "the files of $CHECKOUT can't be compared"
    if [ -n "$changes" ]; then
        printf '%s\n' "$changes" | head -n 50 >&2
        fail "$CHECKOUT differs from $COMMIT (M changed, D missing, T other type, ? extra)"
    fi
}

main "$@"
