#!/usr/bin/env bash
# Writes a Debian 12 root file system, as one tar, to $KBENCH_OUTPUT.
#
# Where a registry answers, it is the official slim image, by digest. Where none does, mmdebstrap
# makes one of the same kind from Debian's archive; on one day's archive that is the same to the
# bit. Either way there is no host name, resolver or device of the machine that made it inside.
set -euo pipefail

readonly IMAGE='debian@sha256:df52e55e3361a81ac1bead266f3373ee55d29aa50cf0975d440c2be3483d8ed3' # bookworm-20250908-slim
readonly SUITE=bookworm
export SOURCE_DATE_EPOCH=1757289600 # 2025-09-08, the date of that image

output=${KBENCH_OUTPUT:?KBENCH_OUTPUT names the file to write}
partial="$output.partial"
container=''
clean_up() {
  rm -f "$partial"
  [ -z "$container" ] || docker rm --force "$container" >/dev/null
}
trap clean_up EXIT

pull() {
  command -v docker >/dev/null || return 1
  timeout 300 docker pull --quiet "$IMAGE" >/dev/null 2>&1 || return 1
}

export_pulled() {
  container=$(docker create "$IMAGE" true)
  docker export "$container" | python3 normalise_tar.py >"$partial"
}

bootstrap() {
  if ! command -v mmdebstrap >/dev/null; then
    echo 'no registry gave the Debian image and there is no mmdebstrap: install the package mmdebstrap, or log the engine in to a registry' >&2
    return 1
  fi
  # The man pages are left out, but openjdk's set-up needs the folder man1. The hook's $1 is
  # mmdebstrap's to fill in.
  # shellcheck disable=SC2016
  mmdebstrap --quiet --variant=apt --architectures=amd64 --format=tar \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --essential-hook='mkdir -p "$1/usr/share/man/man1"' \
    "$SUITE" - | python3 normalise_tar.py >"$partial"
}

if pull; then
  export_pulled
else
  bootstrap
fi
mv "$partial" "$output"
