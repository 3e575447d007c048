#!/usr/bin/env bash
# Fetches the Kotlin compiler, as its npm package, to $KBENCH_OUTPUT.
set -euo pipefail

readonly VERSION=2.4.20

output=${KBENCH_OUTPUT:?KBENCH_OUTPUT names the file to write}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v npm >/dev/null || { echo 'npm is needed to fetch the Kotlin compiler: install the package npm' >&2; exit 1; }
cd "$work"
npm pack --silent "kotlin-compiler@$VERSION" >/dev/null
mv "kotlin-compiler-$VERSION.tgz" "$output"
