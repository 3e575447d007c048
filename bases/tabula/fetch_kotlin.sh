#!/usr/bin/env bash
# Fetches one version of the Kotlin compiler, as its npm package, to $KBENCH_OUTPUT.
#   fetch_kotlin.sh <version>
set -euo pipefail

version=${1:?which version of the Kotlin compiler}
output=${KBENCH_OUTPUT:?KBENCH_OUTPUT names the file to write}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v npm >/dev/null || { echo 'npm is needed to fetch the Kotlin compiler: install the package npm' >&2; exit 1; }
cd "$work"
npm pack --silent "kotlin-compiler@$version" >/dev/null
mv "kotlin-compiler-$version.tgz" "$output"
