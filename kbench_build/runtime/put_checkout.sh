#!/bin/sh
# Puts a checkout in the place of whatever an image has there, and goes on in it.
#
# Usage: put_checkout.sh [FOLDER]   /kbench/checkout becomes FOLDER, in which the lines of
# /kbench/then.sh run. Without FOLDER it only looks at the image. Ends with 3 where the image lacks
# what the verifier needs, and names it on the last line.
set -eu
lacking=
for tool in bash git python3; do
  command -v "$tool" >/dev/null 2>&1 || lacking="$lacking $tool"
done
if [ -n "$lacking" ]; then
  printf '%s\n' "${lacking# }" >&2
  exit 3
fi
[ "$#" -gt 0 ] || exit 0
rm -rf -- "$1"
mkdir -p -- "$1"
rmdir -- "$1"
mv -- /kbench/checkout "$1"
lines=$(cat /kbench/then.sh)
rm -f /kbench/then.sh /kbench/put_checkout.sh
cd -- "$1"
exec sh -euc "$lines"
