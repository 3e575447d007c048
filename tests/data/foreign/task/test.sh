#!/bin/bash

cd /home/adder
export CI=true
export GRADLE_OPTS="-Xmx512m -Dorg.gradle.daemon=false"

git apply --whitespace=nowarn /tests/test.patch

@COMMAND@ || true
exit_code=$?

# All modules' reports in one folder, then the comparison.
mkdir -p /logs/verifier/junit
bash /tests/kotlin_logs_collector.sh /home/adder /logs/verifier/junit

if ls /logs/verifier/junit/*.xml >/dev/null 2>&1; then
    python3 /tests/junit_compare.py /logs/verifier/junit /tests/expected_tests.json
    exit_code=$?
fi

if [ $exit_code -eq 0 ]; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
exit $exit_code
