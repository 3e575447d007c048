#!/usr/bin/env bash
# Seals a checkout: its repository then holds one commit (and, if asked, its ancestors) and nothing else.
#
#   seal_git_history.sh <checkout> <base commit id> [ancestors|none]
#
# Promises:
#   - a NEW object store, made from what the base commit reaches, stands in the place of .git: one ref
#     (refs/heads/main), HEAD on it, a plain configuration, a fresh index, no hooks, logs or notes of
#     operations. Nothing of the old .git is carried over, so nothing has to be found and deleted;
#   - `ancestors` keeps the base's history, `none` (the default) the base alone, under its own id
#     (.git/shallow names it as the place where history ends);
#   - tracked files equal the base. Those that differ are restored, those that only the commit checked
#     out before has are removed; the rest (build output, ignored files) stays, times included;
#   - when it fails it says why, exits with 1 (2: wrong call), and the old .git is in its place. What
#     can be known to be wrong is found before a file of the checkout is touched.
#
# The old repository is read as data: its configuration, hooks, grafts, replacements and commit-graph
# have no say. A repository that it merely points to (linked worktree, alternates) lies elsewhere, is
# left alone, and is named on standard error.
#
# Needs bash and git 2.30 or newer.
set -euo pipefail
umask 022

readonly BRANCH=refs/heads/main

fail() {
    printf 'seal_git_history.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

note() {
    printf 'seal_git_history.sh: %s\n' "$1" >&2
}

# The caller's git variables could point git at other stores, indexes or settings.
forget_environment() {
    local name
    for name in $(compgen -e GIT_ || true); do
        unset "$name"
    done
    # Git before 2.32 knows no GIT_CONFIG_GLOBAL: there an empty home serves.
    export HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent
    export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 \
        GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 \
        LC_ALL=C
}

# Whatever ends the script early, the old .git is in its place and no scratch folder is left.
clean_up() {
    local status=$?
    trap - EXIT
    if [ -n "${OLD:-}" ] && [ ! -e "$CHECKOUT/.git" ] && { [ -e "$OLD" ] || [ -L "$OLD" ]; }; then
        mv -T -- "$OLD" "$CHECKOUT/.git"
    fi
    if [ -n "${SCRATCH:-}" ]; then
        rm -rf -- "$SCRATCH"
    fi
    case $status in
        0 | 2 | 130 | 143) exit "$status" ;;
        *) exit 1 ;;
    esac
}

read_arguments() {
    if [ $# -lt 2 ] || [ $# -gt 3 ]; then
        fail "usage: seal_git_history.sh <checkout> <base commit id> [ancestors|none]" 2
    fi
    BASE=$2
    HISTORY=${3-none}
    [[ $BASE =~ ^([0-9a-f]{40}|[0-9a-f]{64})$ ]] ||
        fail "the base must be a full commit id (40 or 64 lower-case hexadecimal digits), not '$BASE'" 2
    [[ $HISTORY == ancestors || $HISTORY == none ]] ||
        fail "the history to keep is 'ancestors' or 'none', not '$HISTORY'" 2
    CHECKOUT=$(cd -- "$1" 2>/dev/null && pwd -P) || fail "no such folder: $1" 2
    [[ $CHECKOUT != *$'\n'* ]] || fail "the path of the checkout holds a line break" 2
    [ -e "$CHECKOUT/.git" ] || fail "not the top of a git checkout (there is no .git): $CHECKOUT" 2
}

# $1 as an absolute path, seen from folder $2.
resolve() {
    case $1 in
        /*) printf '%s' "$1" ;;
        *) printf '%s/%s' "$2" "$1" ;;
    esac
}

# The git folder that the .git entry $1 stands for: itself, or the folder that the file names.
git_folder() {
    local line
    if [ -d "$1" ]; then
        printf '%s' "$1"
        return
    fi
    IFS= read -r line <"$1" || [ -n "$line" ] || return 1
    [[ $line == 'gitdir: '* ]] || return 1
    resolve "${line#gitdir: }" "$(dirname -- "$1")"
}

# Where the old repository keeps things: GIT_FOLDER (HEAD, index), COMMON (objects, shallow).
find_old_repository() {
    local line
    GIT_FOLDER=$(git_folder "$CHECKOUT/.git") || fail "$CHECKOUT/.git is neither a folder nor a 'gitdir:' file"
    COMMON=$GIT_FOLDER
    if [ -f "$GIT_FOLDER/commondir" ]; then
        IFS= read -r line <"$GIT_FOLDER/commondir" || [ -n "$line" ] || fail "$GIT_FOLDER/commondir is empty"
        COMMON=$(resolve "$line" "$GIT_FOLDER")
    fi
    [ -d "$COMMON/objects" ] || fail "the repository of $CHECKOUT has no objects folder: $COMMON/objects"
    COMMON=$(cd -- "$COMMON" && pwd -P)
    [[ $COMMON != *$'\n'* ]] || fail "the path of the repository holds a line break"
}

# git on the new repository, and on the checkout as its working tree.
new_git() {
    git --git-dir="$NEW" --work-tree="$CHECKOUT" "$@"
}

# The configuration while the old objects are read: nothing in them may steer the walk.
write_working_config() {
    {
        write_config
        printf '[core]\n\tcommitGraph = false\n\tmultiPackIndex = false\n'
        printf '[pack]\n\tthreads = 1\n\tuseBitmaps = false\n\twriteReverseIndex = false\n'
    } >"$NEW/config"
}

# The whole configuration of the sealed repository.
write_config() {
    if [ "${#BASE}" -eq 64 ]; then
        printf '[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = false\n'
        printf '[extensions]\n\tobjectFormat = sha256\n'
    else
        printf '[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n'
    fi
}

# An empty repository that sees the old objects.
make_new_repository() {
    mkdir -p -- "$NEW/objects/info" "$NEW/objects/pack" "$NEW/refs/heads"
    printf 'ref: %s\n' "$BRANCH" >"$NEW/HEAD"
    write_working_config
    printf '%s\n' "$COMMON/objects" >"$NEW/objects/info/alternates"
    [ "$(new_git cat-file -t "$BASE" 2>/dev/null)" = commit ] ||
        fail "the repository of $CHECKOUT has no commit $BASE"
}

# Where history ends: at the base, or where the old clone was already cut off.
write_shallow() {
    if [ "$HISTORY" = none ]; then
        printf '%s\n' "$BASE" >"$NEW/shallow"
    elif [ -s "$COMMON/shallow" ]; then
        cp -- "$COMMON/shallow" "$NEW/shallow"
        new_git rev-list "$BASE" | sort >"$SCRATCH/commits"
        sort -u -- "$COMMON/shallow" | comm -12 - "$SCRATCH/commits" >"$SCRATCH/shallow"
        if [ -s "$SCRATCH/shallow" ]; then
            cp -- "$SCRATCH/shallow" "$NEW/shallow"
        else
            rm -- "$NEW/shallow"
        fi
    fi
}

# Packs what the base reaches. index-pack names every object anew from its content.
copy_objects() {
    new_git rev-list --objects "$BASE" >"$SCRATCH/objects" || fail "the history of $BASE is incomplete in $COMMON"
    new_git pack-objects --quiet --threads=1 --delta-base-offset --stdout <"$SCRATCH/objects" >"$SCRATCH/pack" ||
        fail "the objects of $BASE can't all be read from $COMMON"
    rm -- "$NEW/objects/info/alternates"
    new_git index-pack --threads=1 --stdin <"$SCRATCH/pack" >/dev/null
    rm -- "$SCRATCH/pack"
    printf '%s\n' "$BASE" >"$NEW/$BRANCH"
}

# Paths that the old index tracks and the base doesn't, NUL-separated: left by another commit.
list_leftovers() {
    if [ ! -f "$GIT_FOLDER/index" ]; then
        return
    fi
    mkdir -- "$SCRATCH/old"
    cp -- "$NEW/HEAD" "$NEW/config" "$SCRATCH/old"
    mkdir -p -- "$SCRATCH/old/objects/info" "$SCRATCH/old/refs"
    printf '%s\n' "$COMMON/objects" >"$SCRATCH/old/objects/info/alternates"
    cp -- "$GIT_FOLDER/index" "$SCRATCH/old/index"
    find "$GIT_FOLDER" -maxdepth 1 -type f -name 'sharedindex.*' -exec cp -t "$SCRATCH/old" -- {} +
    git --git-dir="$SCRATCH/old" --work-tree="$CHECKOUT" ls-files -z | sort -zu >"$SCRATCH/old-paths" ||
        fail "the index of $CHECKOUT can't be read"
    new_git ls-tree -r -z --name-only "$BASE" | sort -zu >"$SCRATCH/base-paths"
    comm -z -23 "$SCRATCH/old-paths" "$SCRATCH/base-paths"
}

# .git entries below the top: those of submodules go too, any other is a repository nobody told of.
list_nested_repositories() {
    local entry path known
    new_git ls-files -s -z | { grep -z '^160000 ' || true; } | cut -z -f 2 >"$SCRATCH/submodules"
    cat "$SCRATCH/submodules" "$SCRATCH/leftovers" >"$SCRATCH/expected"
    (cd -- "$CHECKOUT" && find . \( -path ./.git -o -path './.git-seal.*' \) -prune \
        -o -name .git -print0 -prune) >"$SCRATCH/nested"
    while IFS= read -r -d '' entry; do
        known=no
        while IFS= read -r -d '' path; do
            [[ $entry != "./$path"/* ]] || known=yes
        done <"$SCRATCH/expected"
        [ "$known" = yes ] || fail "another repository is inside the checkout: $CHECKOUT/${entry#./} (remove it before sealing)"
    done <"$SCRATCH/nested"
}

# A submodule's files can't be restored from here, so its checkout must be the one that the base names.
check_submodules() {
    local path wanted found
    while IFS= read -r -d '' path; do
        [ -e "$CHECKOUT/$path/.git" ] || continue
        wanted=$(new_git rev-parse "$BASE:$path")
        found=$(git --git-dir="$(git_folder "$CHECKOUT/$path/.git")" rev-parse HEAD 2>/dev/null) || found=unknown
        [ "$found" = "$wanted" ] ||
            fail "the submodule $path is at $found, the base has it at $wanted (check it out before sealing)"
    done <"$SCRATCH/submodules"
}

# Those of the paths on standard input that don't lead through a symbolic link: it could lead out.
keep_inside() {
    local path folder
    while IFS= read -r -d '' path; do
        folder=$path
        while [[ $folder == */* ]]; do
            folder=${folder%/*}
            [ ! -L "$CHECKOUT/$folder" ] || continue 2
        done
        printf '%s\0' "$path"
    done
}

# Removes what another commit left, and the folders that are empty then.
remove_leftovers() {
    local path
    keep_inside <"$SCRATCH/leftovers" >"$SCRATCH/removable"
    (cd -- "$CHECKOUT" && xargs -0 -r rm -rf -- <"$SCRATCH/removable")
    while IFS= read -r -d '' path; do
        [[ $path != */* ]] || printf '%s\0' "${path%/*}"
    done <"$SCRATCH/removable" | sort -zu >"$SCRATCH/folders"
    # A folder that isn't empty, or went with another one, is no failure.
    (cd -- "$CHECKOUT" && xargs -0 -r rmdir -p -- <"$SCRATCH/folders" 2>/dev/null) || true
}

# Tracked files equal the base; files that already do keep their times.
restore_tracked_files() {
    remove_leftovers
    new_git update-index -q --refresh >/dev/null || true
    new_git checkout-index --all --force --index --quiet
    new_git update-index -q --refresh >/dev/null || true
}

# The new repository must be what was promised before it takes its place.
check_new_repository() {
    cut -d ' ' -f 1 <"$SCRATCH/objects" | sort -u >"$SCRATCH/wanted"
    new_git cat-file --batch-all-objects --batch-check='%(objectname)' | sort -u >"$SCRATCH/stored"
    cmp -s -- "$SCRATCH/wanted" "$SCRATCH/stored" || fail "the new object store isn't what $BASE reaches"
    [ "$(new_git rev-parse HEAD)" = "$BASE" ] || fail "HEAD of the new repository isn't $BASE"
    new_git diff-index --quiet --cached "$BASE" -- || fail "the new index isn't $BASE"
    if ! new_git diff-files --quiet --ignore-submodules=all --; then
        new_git diff-files --name-only --ignore-submodules=all -- | head -n 5 >&2
        fail "tracked files (above) can't be made equal to $BASE; a filter that its .gitattributes name may be missing"
    fi
}

name_what_stays_elsewhere() {
    if [ "$COMMON" != "$CHECKOUT/.git" ]; then
        note "$COMMON is outside the checkout and keeps its history: remove it from the image"
    fi
    if [ -s "$COMMON/objects/info/alternates" ]; then
        note "alternate object stores keep their history: $(tr '\n' ' ' <"$COMMON/objects/info/alternates")"
    fi
}

# Two renames. Between them the trap puts the old .git back.
swap() {
    local owner entry
    owner=$(stat -c '%u:%g' -- "$CHECKOUT/.git")
    [ "$(stat -c '%u:%g' -- "$NEW")" = "$owner" ] || chown -R -- "$owner" "$NEW"
    OLD=$SCRATCH/replaced
    mv -T -- "$CHECKOUT/.git" "$OLD"
    mv -T -- "$NEW" "$CHECKOUT/.git"
    while IFS= read -r -d '' entry; do
        rm -rf -- "${CHECKOUT:?}/$entry"
    done <"$SCRATCH/nested"
}

main() {
    read_arguments "$@"
    forget_environment
    find_old_repository
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    SCRATCH=$(mktemp -d -- "$CHECKOUT/.git-seal.XXXXXX")
    NEW=$SCRATCH/git
    make_new_repository
    write_shallow
    copy_objects
    new_git read-tree "$BASE"
    list_leftovers >"$SCRATCH/leftovers"
    list_nested_repositories
    check_submodules
    restore_tracked_files
    write_config >"$NEW/config"
    check_new_repository
    name_what_stays_elsewhere
    swap
    printf 'sealed %s at %s (history: %s, objects: %s)\n' \
        "$CHECKOUT" "$BASE" "$HISTORY" "$(wc -l <"$SCRATCH/wanted")"
}

main "$@"
