#!/bin/bash
# Copies the reports of all modules of $1 into the folder $2, numbered.

number=0
for report in $(find "$1" -path '*/build/test-results/*/TEST*.xml'); do
    number=$((number + 1))
    cp "$report" "$2/$number-$(basename "$report")"
done
