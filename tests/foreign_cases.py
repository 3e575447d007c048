"""Shapes of a task's own test.sh, one entry a defect; and what only looks like one and passes."""

REWARD = "/logs/verifier/reward.txt"
# Begins as a sound verifier does: line 3 is the first of an entry's own.
HEAD = f"#!/bin/bash\necho 0 > {REWARD}\n"
ASK = f"if [ $status -eq 0 ]; then\n  echo 1 > {REWARD}\nfi\n"
RUN = "./gradlew test"

# (rule, the script's lines after HEAD, the line that is named)
DEFECTS: tuple[tuple[str, str, str], ...] = (
    ("exit-code", f"{RUN} || true\nstatus=$?\n{ASK}", "line 4"),
    ("exit-code", f"{RUN} ||\n  :\nstatus=$?\n{ASK}", "line 5"),
    ("exit-code", f"{RUN} | tee log\nstatus=$?\n{ASK}", "line 4"),
    ("exit-code", f"{RUN} || echo failed\nif [ $? -eq 0 ]; then echo 1 > {REWARD}; fi\n", "line 4"),
    (
        "exit-code",
        f"{RUN} || true\nstatus=$?\nif ls *.xml; then python3 /tests/c.py; status=$?; fi\n{ASK}",
        "line 4",
    ),
    ("exit-code", f"set -o pipefail\nset +o pipefail\n{RUN} | tail\nstatus=$?\n{ASK}", "line 6"),
    ("inverted-reward", f"{RUN}\necho $? > {REWARD}\n", "line 4"),
    ("inverted-reward", f"{RUN}\nstatus=$?\necho $status > {REWARD}\n", "line 5"),
    ("early-reward", f"echo 1 > {REWARD}\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
    ("early-reward", f"{RUN} || true\necho 1 > {REWARD}\n", "line 4"),
    (
        "two-rewards",
        f"{RUN}\nstatus=$?\n{ASK}echo '{{\"reward\": 0}}' > /logs/verifier/reward.json\n",
        "line 8",
    ),
    (
        "stale-reports",
        f"{RUN}\nfind . -name 'TEST-*.xml' -exec cp {{}} /logs \\;\npython3 /tests/c.py && "
        f"echo 1 > {REWARD}\n",
        "line 4",
    ),
    (
        "stale-reports",
        "./gradlew clean test\ncp app/build/test-results/test/*.xml /tmp/out\n"
        "rm -rf app/build/test-results\n",
        "line 4",
    ),
    ("unchecked-patch", f"git apply /tests/test.patch\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
    ("unchecked-patch", f"git apply /tests/test.patch || true\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
    ("unchecked-patch", f"patch -p1 < /tests/test.patch\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
    ("empty-run", f"npx jest --passWithNoTests\nstatus=$?\n{ASK}", "line 3"),
    ("empty-run", f"npx vitest run \\\n  --passWithNoTests a\nstatus=$?\n{ASK}", "line 3"),
    ("empty-run", f"cargo test -p x my_test -- --nocapture\nstatus=$?\n{ASK}", "line 3"),
    ("empty-run", f"go test ./...\nstatus=$?\n{ASK}", "line 3"),
    ("output", f"{RUN} > log\nif grep -q '2 passed' log; then echo 1 > {REWARD}; fi\n", "line 4"),
    (
        "source-text",
        f"if ! grep -q 'new name' src/a.ts; then exit 1; fi\n{RUN}\nstatus=$?\n{ASK}",
        "line 3",
    ),
    ("installs", f"npm ci\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
    ("installs", f"apt-get update && apt-get install -y jq\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
    ("installs", f"curl -o x https://h/x\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
    ("path", f"git apply /tests/test.patch || exit 1\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
    ("path", f"{RUN}\npython3 /tests/c.py && echo 1 > {REWARD}\n", "line 4"),
    ("path", f"source ~/.bashrc\n{RUN}\nstatus=$?\n{ASK}", "line 3"),
)

# (rule, a plain task's whole script, the line that is named)
PLAIN: tuple[tuple[str, str, str], ...] = (
    ("no-default", f"npx jest a.js\nstatus=$?\n{ASK}", "line 4"),
    ("no-default", f"npx jest a.js\necho 0 > {REWARD}\nexit 1\n", "line 2"),
    ("no-default", f"if [ -d x ]; then echo 0 > {REWARD}; fi\nnpx jest a.js\n", "line 1"),
    ("missing-tool", f"{HEAD}npx jest a.js > log\njq .ok log && echo 1 > {REWARD}\n", "line 4"),
    ("exit-code-only", f"{HEAD}npx jest a.js\nstatus=$?\n{ASK}", "line 3"),
    (
        "exit-code-only",
        f"{HEAD}npx jest a.js\nif [ $? -eq 0 ]; then echo 1 > {REWARD}; fi\n",
        "line 3",
    ),
)

_SAFE = f"PATH=/usr/bin:/bin\n{RUN}\nstatus=$?\n{ASK}"
# (what it is, the script's lines after HEAD): nothing but what it says of itself is found.
SOUND: tuple[tuple[str, str], ...] = (
    ("the exit code of the command itself", _SAFE),
    ("a pipe that counts", f"set -o pipefail\n{RUN} | tee log\nstatus=$?\n{ASK}"),
    ("the exit code of a part of a pipe", f"{RUN} | tee log\nstatus=${{PIPESTATUS[0]}}\n{ASK}"),
    ("a code that nobody looks at", f"rm -f x || true\ncode=$?\n{RUN}\nstatus=$?\n{ASK}"),
    ("a code that is replaced", f"{RUN} || true\nstatus=$?\n{RUN}\nstatus=$?\n{ASK}"),
    (
        "a code that failures make 1",
        f"status=0\n{RUN} || status=1\n{ASK}",
    ),
    (
        "reports deleted before the run",
        f"find . -name 'TEST-*.xml' -delete\n{RUN}\ncp build/test-results/test/*.xml /tmp/x\n",
    ),
    (
        "a build folder deleted before the run",
        f"rm -rf build\n{RUN}\ncp build/test-results/test/*.xml /tmp/x\n",
    ),
    ("reports that the script wrote itself", f"{RUN} > /tmp/log.xml\ncat /tmp/log.xml\n"),
    ("a patch whose failure ends it", f"PATH=/bin\ngit apply /tests/test.patch || exit 1\n{_SAFE}"),
    ("a shell that stops", f"set -e\nPATH=/bin\ngit apply /tests/test.patch\n{RUN}\n"),
    (
        "a patch whose failure is looked at",
        f"PATH=/bin\nif ! git apply /tests/test.patch; then exit 1; fi\n{_SAFE}",
    ),
    ("a patch of the solution's", f"PATH=/bin\npatch -p1 < /tmp/x.patch\n{_SAFE}"),
    ("a reward after set -e", f"set -e\n{RUN}\necho 1 > {REWARD}\n"),
    ("a reward after a check", f"{RUN} || exit 1\necho 1 > {REWARD}\n"),
    ("a chain", f"{RUN} && echo 1 > {REWARD}\n"),
    (
        "tests counted",
        f"cargo test x > log\nstatus=$?\ngrep -q 'running 2 tests' log || exit 1\n{ASK}",
    ),
    ("a file tested by name", f"cargo test --test spec_tests\nstatus=$?\n{ASK}"),
    ("packages at hand", f"npm ci --offline\n{RUN}\nstatus=$?\n{ASK}"),
    ("a server of its own", f"curl -s http://localhost:80/ | cat\n{RUN}\nstatus=$?\n{ASK}"),
    ("words in a text", f"echo 'git apply /tests/test.patch || true'\n{RUN}\nstatus=$?\n{ASK}"),
    ("a search of a log", f"{RUN} > /tmp/a.log\ngrep -q x /tmp/a.log || exit 1\n"),
)
