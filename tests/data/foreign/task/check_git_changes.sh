#!/bin/bash
# Stops the build of the image where the checkout has changes.
set -e

if [ -n "$(git status --porcelain)" ]; then
    echo "the checkout has changes"
    exit 1
fi
