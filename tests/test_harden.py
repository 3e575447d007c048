"""`kbench harden` on small datasets in the older shape: what it proposes, refuses and writes."""

import json
import os
import pty
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from kbench_build import runtime
from kbench_build.cli import cli
from kbench_build.errors import KbenchError
from kbench_build.rim import schemas
from kbench_build.rim.config import load_config
from kbench_build.rim.dataset import open_dataset
from kbench_build.rules.harden import Edit, Options, Plan, plan
from kbench_build.rules.manifest import parse_manifest
from kbench_build.rules.shipped import SHIPPED
from kbench_build.steps import validate
from kbench_build.steps.harden import Hardened, write
from kbench_build.steps.sync import sync
from tests.foreign_kit import BASE_DOCKERFILE, COMMAND, TASKS, Foreign, make

PROJECT = Path(__file__).parent.parent
RUNTIME = Path(runtime.__file__).parent
TASK = TASKS[0]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return make(tmp_path_factory.mktemp("older"), tasks=(TASK,))


@pytest.fixture
def made(template: Foreign, tmp_path: Path) -> Foreign:
    """One task in the older shape, for a test to change."""
    shutil.copytree(template.root, tmp_path / "dataset")
    return Foreign(
        root=tmp_path / "dataset",
        upstream=template.upstream,
        bases=template.bases,
        fixes=template.fixes,
    )


def make_again(made: Foreign) -> Foreign:
    """The same task once more, in the older shape."""
    root = made.root.parent / "again"
    again = make(root, tasks=(TASK,))
    return replace(made, root=again.root)


def kbench(made: Foreign, *arguments: str, upstream: bool = True, **options: Any) -> Result:
    given = ["--repository", str(made.upstream)] if upstream else []
    return CliRunner().invoke(
        cli, ["harden", "--root", str(made.root), *given, *arguments], **options
    )


def contents(root: Path) -> dict[str, bytes]:
    """Every file of the dataset's tasks and bases."""
    files = (p for part in ("tasks", "bases") for p in (root / part).rglob("*") if p.is_file())
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


def hardened(made: Foreign, *arguments: str) -> Path:
    """The task's folder, after it was hardened."""
    done = kbench(made, "--yes", *arguments)
    assert done.exit_code == 0, done.output
    return made.task()


def verify_of(task: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((task / "tests/verify.json").read_text())
    return value


def test_a_task_comes_to_the_shipped_verifier_and_seal(made: Foreign) -> None:
    task = hardened(made)
    for place, name in SHIPPED.items():
        assert (task / place).read_bytes() == (RUNTIME / name).read_bytes()
    base = made.bases[TASK]
    data = verify_of(task)
    assert data["workdir"] == "/home/adder"
    assert data["base_commit"] == base
    assert data["command"] == COMMAND.split()
    assert data["environment"] == {
        "LANG": "C.UTF-8",
        "CI": "true",
        "GRADLE_OPTS": "-Xmx512m -Dorg.gradle.daemon=false",
    }
    assert data["reports"] == ["**/build/test-results/**/TEST*.xml"]
    assert data["timeout_sec"] == 810
    assert list(data["hidden"]) == ["app/src/test/sh/AdderTest.sh"]
    assert list(data["protected"]["files"]) == ["gradlew"]
    dockerfile = (task / "environment/Dockerfile").read_text()
    assert dockerfile == DOCKERFILE_AFTER.replace("BASE", base)
    assert (
        f"check_git_changes.sh /home/adder {base}\n"
        in (task / "environment/prepare.sh").read_text()
    )


DOCKERFILE_AFTER = """FROM kotlin-bench/adder:jdk17 AS sealed
COPY seal_git_history.sh /home/
RUN bash /home/seal_git_history.sh /home/adder BASE ancestors

FROM kotlin-bench/adder:jdk17-tools
COPY --from=sealed /home/adder /home/adder

COPY check_git_changes.sh /home/
COPY prepare.sh /home/

RUN bash /home/prepare.sh

# The runner needs tmux, the comparer python3.
RUN (apt-get update && apt-get install -y --no-install-recommends tmux python3)

WORKDIR /home/adder
"""


def test_the_base_gets_a_twin_without_a_checkout(made: Foreign) -> None:
    before = contents(made.root)
    hardened(made)
    bases = made.root / "bases"
    assert (bases / "manifest").read_text() == (
        before["bases/manifest"].decode() + "adder  jdk17-tools  Dockerfile.jdk17-tools\n"
    )
    assert (bases / "adder/Dockerfile.jdk17-tools").read_text().splitlines()[2:] == [
        "FROM kotlin-bench/adder:jdk17 AS whole",
        "RUN rm -rf /home/adder",
        "",
        "FROM eclipse-temurin:17-jdk",
        "COPY --from=whole / /",
        "ENV LANG=C.UTF-8",
    ]
    recipe = "bases/adder/Dockerfile.jdk17"
    assert (made.root / recipe).read_bytes() == before[recipe]


def test_a_twin_that_is_there_is_taken_as_it_is(made: Foreign) -> None:
    bases = made.root / "bases"
    (bases / "manifest").write_text("adder jdk17 Dockerfile.jdk17\nadder jdk17-tools Tools")
    (bases / "adder/Tools").write_text("FROM scratch\n")
    hardened(made)
    assert (bases / "manifest").read_text().endswith("Tools")
    assert not (bases / "adder/Dockerfile.jdk17-tools").exists()


@pytest.mark.parametrize(
    ("manifest", "after"),
    [
        ("adder jdk17 Dockerfile.jdk17",
         "adder jdk17 Dockerfile.jdk17\nadder jdk17-tools Dockerfile.jdk17-tools\n"),
        ("# x\r\nadder\tjdk17\tDockerfile.jdk17 # why\r\n# end\r\n",
         "# x\r\nadder\tjdk17\tDockerfile.jdk17 # why\r\n"
         "adder\tjdk17-tools\tDockerfile.jdk17-tools\r\n# end\r\n"),
    ],
)  # fmt: skip
def test_the_manifest_keeps_its_style(made: Foreign, manifest: str, after: str) -> None:
    (made.root / "bases/manifest").write_bytes(manifest.encode())
    hardened(made)
    assert (made.root / "bases/manifest").read_bytes() == after.encode()


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("FROM eclipse-temurin:17\nONBUILD RUN x\n", "whose Dockerfile has ONBUILD"),
        ("ARG TAG\nFROM eclipse-temurin:${TAG}\n", "of which no twin"),
        ("", "of which no twin"),
    ],
)
def test_a_base_of_which_no_twin_can_be_made_refuses_its_tasks(
    made: Foreign, recipe: str, said: str
) -> None:
    (made.root / "bases/adder/Dockerfile.jdk17").write_text(recipe)
    before = contents(made.root)
    done = kbench(made, "--yes")
    assert said in done.output
    assert contents(made.root) == before


def test_task_toml_gets_the_current_keys(made: Foreign) -> None:
    config = tomllib.loads((hardened(made) / "task.toml").read_text())
    assert "version" not in config
    assert config["schema_version"] == "1.4"
    assert config["task"] == {"name": f"kotlin-bench/{TASK}"}
    assert config["metadata"]["source"]["base_commit"] == made.bases[TASK]
    assert config["metadata"]["source"]["issue_urls"] == [
        "https://git.acme.example/acme/adder/issues/6"
    ]
    assert config["environment"]["network_mode"] == "no-network"
    assert config["agent"]["network_mode"] == "allowlist"
    assert len(config["agent"]["allowed_hosts"]) == 10
    assert config["verifier"] == {"timeout_sec": 900.0, "network_mode": "no-network"}


def test_a_hardened_task_validates_as_a_shipped_one(made: Foreign) -> None:
    hardened(made)
    bases, _ = parse_manifest(open_dataset(made.root).manifest)
    report = validate.validate_task(
        made.root, TASK, config=load_config(made.root), bases=bases, inputs="-"
    )
    assert report.data["form"] == "shipped"
    # The build that warms the caches is the maintainer's: harden says so and leaves it.
    assert [f["rule"] for f in report.data["findings"]] == ["recipe/swallowed"]


def test_the_diff_comes_first_and_nothing_is_written_unasked(made: Foreign) -> None:
    before = contents(made.root)
    done = kbench(made)
    assert done.exit_code == 1
    assert contents(made.root) == before
    assert f"--- a/tasks/{TASK}/tests/test.sh\n+++ b/tasks/{TASK}/tests/test.sh\n" in done.output
    for line in (made.task() / "tests/test.sh").read_text().splitlines():
        assert f"-{line}\n" in done.output
    assert "--- /dev/null\n" in done.output
    assert "nothing was written" in done.output


def test_a_second_run_changes_nothing(made: Foreign) -> None:
    hardened(made)
    before = {p: p.stat().st_mtime_ns for p in made.root.rglob("*") if ".kbench" not in p.parts}
    again = kbench(made, "--yes")
    assert (again.exit_code, again.output) == (0, "1 nothing to do\n")
    assert kbench(made, "--check", upstream=False).exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_check_only_reports(made: Foreign) -> None:
    before = contents(made.root)
    assert kbench(made, "--check").exit_code == 1
    assert contents(made.root) == before
    hardened(made)
    assert kbench(made, "--check").exit_code == 0
    made.edit("tests/test.sh", "set -uo pipefail", "set -u")
    assert kbench(made, "--check").exit_code == 1


def test_check_and_yes_together_are_a_bad_call(made: Foreign) -> None:
    assert kbench(made, "--check", "--yes").exit_code == 2
    assert kbench(made, "--env", "=x").exit_code == 2
    assert kbench(made, "--reports", "../*.xml").exit_code == 2
    missing = kbench(made, "acme_adder-8")
    assert isinstance(missing.exception, KbenchError)


def test_what_was_written_by_hand_stays_as_it_was(made: Foreign) -> None:
    (made.task() / "task.toml").write_text(ODD_TOML)
    assert (hardened(made) / "task.toml").read_text() == ODD_TOML_AFTER.replace(
        "BASE", made.bases[TASK]
    )


ODD_TOML = """# Who made this.
version = "1.0"   # the older one

[metadata]
difficulty = 'easy'
tags = [ "a" ,'b',
  # why c
  "c" ]

[metadata.source]  # upstream
repository_owner = 'acme'
issue_url = 'https://git.acme.example/6' # the report
license   = "Apache-2.0"

# What it runs on.
[environment]
  allow_internet = true # agents look things up
  cpus = 1

[verifier]
implemented = true  # since May
timeout_sec = 900.0"""
ODD_TOML_AFTER = """# Who made this.
schema_version = "1.4"   # the older one

[task]
name = "kotlin-bench/acme_adder-7"

[metadata]
difficulty = 'easy'
tags = [ "a" ,'b',
  # why c
  "c" ]
verifier_implemented = true  # since May

[metadata.source]  # upstream
repository_owner = 'acme'
issue_urls = ['https://git.acme.example/6'] # the report
license   = "Apache-2.0"
base_commit = "BASE"

# What it runs on.
[environment]
  network_mode = "no-network" # agents look things up
  cpus = 1

[verifier]
timeout_sec = 900.0
network_mode = "no-network"

[agent]
network_mode = "allowlist"
allowed_hosts = [
  "repo.maven.apache.org",
  "repo1.maven.org",
  "plugins.gradle.org",
  "plugins-artifacts.gradle.org",
  "services.gradle.org",
  "downloads.gradle.org",
  "maven.google.com",
  "dl.google.com",
  "cache-redirector.jetbrains.com",
  "pub.dev",
]
"""


def test_windows_line_ends_stay(made: Foreign) -> None:
    for place in ("task.toml", "environment/Dockerfile"):
        path = made.task() / place
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    task = hardened(made)
    for place in ("task.toml", "environment/Dockerfile"):
        data = (task / place).read_bytes()
        assert data.count(b"\n") == data.count(b"\r\n") > 10
    assert kbench(made, "--check").exit_code == 0


def test_run_bits_stay(made: Foreign) -> None:
    (made.task() / "tests/test.sh").chmod(0o755)
    task = hardened(made)
    modes = [(task / "tests" / n).stat().st_mode & 0o777 for n in ("test.sh", "verify.json")]
    assert modes == [0o755, 0o644]


# What some test.sh do to make way for the hidden patch: read its paths, put those files back.
READ_PATHS = """paths=()
while IFS= read -r line; do
  if [[ "$line" != "diff --git a/"* ]]; then
    continue
  fi; paths+=("${line#diff --git a/}")
done < /tests/test.patch
"""
TIDYING = """git config core.autocrlf input
git config --local core.filemode false
echo ".gitattributes" >> .git/info/exclude
git add .
"""
PUT_BACK = """for f in "${paths[@]}"; do
  if git restore --source=HEAD -- "$f" 2>/dev/null; then
    continue
  fi; git rm --cached -f -- "$f" 2>/dev/null || true
  rm -f -- "$f" || exit 1
done
"""

# (file, a text in it, what stands in its place, the line and words of the reason)
UNKNOWN: list[tuple[str, str, str, str]] = [
    ("tests/test.sh", "git apply", "sed -i s/a/b/ x.kts\ngit apply", "line 7: runs sed"),
    ("tests/test.sh", "git apply", "source ~/.bashrc\ngit apply", "line 7: runs source"),
    ("tests/test.sh", "git apply", "rm -rf app/src/test/Flaky.kt\ngit apply", "line 7: removes"),
    ("tests/test.sh", "git apply", 'rm "$(./x)/logs/a"\ngit apply', "line 7: runs ./x"),
    ("tests/test.sh", "git apply", "mkdir -p app/generated\ngit apply", "line 7: writes to app"),
    ("tests/test.sh", "git apply", "./gradlew :a:stop\ngit apply", "line 7: runs a command before"),
    ("tests/test.sh", "git apply", "git checkout HEAD~1\ngit apply", "line 7: runs git"),
    ("tests/test.sh", "git apply", "if true; then\ngit apply", "line 7: makes what runs"),
    ("tests/test.sh", "/tests/test.patch", "/tests/b.patch", "line 7: applies something else"),
    ("tests/test.sh", "--whitespace=nowarn", "--exclude=x", "line 7: applies something else"),
    ("tests/test.sh", "export CI=true", "export CI=$(date)", "line 4: exports CI"),
    ("tests/test.sh", "export CI=true", "export CI=`date`", "line 4: runs a command in backquotes"),
    ("tests/test.sh", "export CI=true", "export CI=\nlistener &", "line 5: runs a command in the"),
    ("tests/test.sh", "cd /home/adder", 'cd "$HOME"', "line 3: goes to a folder"),
    ("tests/test.sh", "--continue ||", "--continue && ./gradlew it ||", "line 9: joins the test"),
    ("tests/test.sh", "--continue ||", "--tests *Adder* ||", "line 9: has *Adder* in the test"),
    ("tests/test.sh", "--continue ||", "--continue </dev/zero ||", "line 9: gives the test"),
    ("tests/test.sh", "exit_code=$?", "./gradlew check", "line 10: runs ./gradlew check after"),
    ("tests/test.sh", "exit_code=$?", "exit_code=$(./gradlew it)", "line 10: runs ./gradlew it"),
    ("tests/test.sh", "exit_code=$?", "{ ./gradlew it; }", "line 10: runs ./gradlew it"),
    ("tests/test.sh", "exit_code=$?", "find . -exec ./x {} +", "line 10: runs ./x {}"),
    ("tests/test.sh", "exit_code=$?", "python3 -c 'print(1)'", "line 10: runs python3 -c"),
    ("tests/test.sh", "exit_code=$?", "python3 <<END\n1\nEND", "line 10: begins a here-document"),
    ("tests/test.sh", "exit_code=$?", "python3 /tests/x.py", "line 10: runs python3 /tests/x.py"),
    ("tests/test.sh", "exit_code=$?", "echo 'a\nb'", "line 10: has a quote"),
    (
        "tests/test.sh",
        "git apply",
        'for f in a; do\nrm -f -- "$f"\ndone\ngit apply',
        "line 7: makes",
    ),
    (
        "tests/test.sh",
        "git apply",
        READ_PATHS.replace("/tests/test.patch", "/tmp/x") + "git apply",
        "line 12: reads names",
    ),
    (
        "tests/test.sh",
        "git apply",
        READ_PATHS.replace("continue", "./x") + "git apply",
        "line 10: runs ./x in a block",
    ),
    (
        "tests/test.sh",
        "git apply",
        READ_PATHS.replace("$line", "$(./x)") + "git apply",
        "line 9: runs a command in a block",
    ),
    (
        "tests/test.sh",
        "git apply",
        READ_PATHS + PUT_BACK.replace("HEAD", "main") + "git apply",
        "line 14: changes other files",
    ),
    (
        "tests/test.sh",
        "git apply",
        READ_PATHS + PUT_BACK.replace('-- "$f" ||', "-- src ||") + "git apply",
        "line 17: changes other files",
    ),
    (
        "tests/test.sh",
        "git apply",
        READ_PATHS + PUT_BACK.replace("fi", "fi\n./gradlew a") + "git apply",
        "line 17: runs ./gradlew in a block",
    ),
    (
        "tests/test.sh",
        "git apply --whitespace=nowarn /tests/test.patch",
        "if ! git apply /tests/b.patch; then\nexit 1\nfi",
        "line 7: makes what runs",
    ),
    (
        "environment/prepare.sh",
        "git reset",
        "git config core.hooksPath /x\ngit reset",
        "line 5: runs",
    ),
    (
        "environment/prepare.sh",
        "git reset",
        "git config --global core.eol lf\ngit reset",
        "line 5: run",
    ),
    ("environment/prepare.sh", "git reset", "echo x >> src/a.kt\ngit reset", "line 5: writes to"),
    ("environment/prepare.sh", "git reset", "git add . ; git reset", "line 5: is to go, but"),
    ("environment/prepare.sh", "git reset", "git add \\\n  .\ngit reset", "line 5: is to go, but"),
    ("environment/prepare.sh", "# Once", "git add .\n# Once", "line 10: runs git"),
    (
        "environment/Dockerfile",
        "WORKDIR",
        "RUN chmod +x /home/adder/gradlew\nWORKDIR",
        "line 14: does",
    ),
    (
        "environment/Dockerfile",
        "WORKDIR",
        "RUN chmod +x /home/*\nWORKDIR",
        "line 14: does something",
    ),
    (
        "environment/Dockerfile",
        "WORKDIR",
        "RUN chmod -R 777 /home/x\nWORKDIR",
        "line 14: does some",
    ),
    ("environment/prepare.sh", "git reset", "git fetch origin x\ngit reset", "line 5: runs git"),
    ("environment/prepare.sh", "# Once", "sed -i s/a/b/ x.kts\n# Once", "line 10: runs sed"),
    ("environment/prepare.sh", "# Once", "git checkout main\n# Once", "line 10: checks out"),
    ("environment/prepare.sh", "# Once", "cd /opt\n# Once", "line 10: leaves the checkout"),
    ("environment/prepare.sh", "--continue", '--continue "$(x)"', "line 11: is more than"),
    ("environment/Dockerfile", "WORKDIR", "RUN git fetch\nWORKDIR", "line 14: does something"),
    ("environment/Dockerfile", "WORKDIR", "USER dev\nWORKDIR", "line 14: has USER"),
    ("environment/Dockerfile", "adder:jdk17", "adder:jdk21", "which no line of bases/manifest"),
    ("environment/Dockerfile", "python3)", "python3 && git fetch)", "line 9: does something"),
    ("environment/Dockerfile", "python3)", "$(curl x))", "line 9: does something"),
    ("environment/Dockerfile", "WORKDIR", "FROM x:1\nWORKDIR", "line 14: begins another stage"),
    ("environment/Dockerfile", "WORKDIR", "RUN <<END\nls\nEND\nWORKDIR", "line 14: begins a here"),
    ("environment/Dockerfile", "WORKDIR /home/adder", "WORKDIR /app", "ends in WORKDIR /app"),
    ("environment/Dockerfile", "RUN bash /home/prepare.sh\n", "", "calls no prepare.sh"),
    ("solution/solve.sh", "git apply", "./gradlew spotlessApply\ngit apply", "line 5: does more"),
    ("solution/solve.sh", "cd /home/adder", "cd /app", "line 4: leaves the checkout"),
    ("task.toml", "[agent]\ntimeout_sec = 1800.0", "", ""),
    ("task.toml", "allow_internet = true", 'allow_internet = "yes"', "neither true nor false"),
    ("task.toml", "[metadata.source]", "[metadata.source]\nbase_commit = 'x'", "base_commit is"),
    ("task.toml", 'version = "1.0"', 'version = "1.0', "can't be read"),
]


@pytest.mark.parametrize(("place", "old", "new", "said"), UNKNOWN)
def test_a_line_that_is_not_recognised_refuses_the_whole_task_and_says_why(
    made: Foreign, place: str, old: str, new: str, said: str
) -> None:
    made.edit(place, old, new)
    if not said:
        assert kbench(made, "--yes").exit_code == 0
        return
    before = contents(made.root)
    done = kbench(made, "--yes")
    assert done.exit_code == 1
    assert contents(made.root) == before
    refused = [line for line in done.output.splitlines() if line.startswith("refused")]
    assert any(f"tasks/{TASK}/{place}: {said}" in line for line in refused) or (
        not said.startswith("line") and any(place in r and said in r for r in refused)
    ), done.output
    assert "1 refused" in done.output


def test_a_script_that_makes_way_for_the_hidden_patch_comes_to_the_same(made: Foreign) -> None:
    plain = verify_of(hardened(made))
    again = make_again(made)
    apply = "git apply --whitespace=nowarn /tests/test.patch"
    stop = f"if ! {apply}; then\n  echo 'no patch' >&2\n  exit 1\nfi"
    again.edit("tests/test.sh", apply, f"{READ_PATHS}{PUT_BACK}{stop}")
    first = "rm -rf /logs/verifier && mkdir -p /logs/verifier\necho 0 >/logs/verifier/reward.txt\n"
    again.edit("tests/test.sh", "cd /home/adder", f"{first}cd /home/adder")
    assert verify_of(hardened(again)) == plain


def test_what_makes_a_clone_look_clean_goes_since_a_sealed_checkout_is(made: Foreign) -> None:
    before = (made.task() / "environment/prepare.sh").read_text()
    plain = (hardened(made) / "environment/prepare.sh").read_text()
    again = make_again(made)
    assert before == (again.task() / "environment/prepare.sh").read_text()
    again.edit("environment/prepare.sh", "git reset", f"{TIDYING}git reset")
    assert (hardened(again) / "environment/prepare.sh").read_text() == plain


def test_modes_of_files_outside_the_checkout_may_be_set(made: Foreign) -> None:
    made.edit("environment/Dockerfile", "WORKDIR", "RUN chmod +x /home/*.sh\nWORKDIR")
    assert "\nRUN chmod +x /home/*.sh\n" in (hardened(made) / "environment/Dockerfile").read_text()


def test_an_installation_that_may_never_have_worked_is_named(made: Foreign) -> None:
    made.edit("environment/Dockerfile", "python3)", "python3 && pip install asciinema)")
    output = kbench(made, "--check").output
    assert "line 9: an installation that fails stops the build now" in output
    assert "no line here installs pip, which it calls [harden/installation]" in output
    made.edit("environment/Dockerfile", "tmux python3", "tmux python3-pip")
    assert "which it calls" not in kbench(made, "--check").output


def test_a_file_outside_the_checkout_that_steers_the_tests_is_named(made: Foreign) -> None:
    made.edit("tests/test.sh", "--continue", "--continue --init-script=/home/flaky.gradle")
    output = kbench(made, "--check").output
    assert "tests/verify.json: the tests are given /home/flaky.gradle, which an agent" in output


@pytest.mark.parametrize(
    ("old", "new", "command"),
    [
        ("--continue", "--tests 'a.*Test' -x :b:test", ["--tests", "a.*Test", "-x", ":b:test"]),
        ("--continue", "\\\n    --continue 2>&1 | tee /logs/verifier/build.log", ["--continue"]),
        ("--continue", "-Pa=\"$CI\" --init-script /home/x.gradle",
         ["-Pa=true", "--init-script", "/home/x.gradle"]),
    ],
)  # fmt: skip
def test_another_test_command_is_taken_as_the_shell_would_run_it(
    made: Foreign, old: str, new: str, command: list[str]
) -> None:
    made.edit("tests/test.sh", old, new)
    assert verify_of(hardened(made))["command"] == ["./gradlew", "clean", "test", *command]


def test_settings_come_from_images_exports_and_the_command_line(made: Foreign) -> None:
    base = made.root / "bases/adder/Dockerfile.jdk17"
    base.write_text(
        'FROM eclipse-temurin:17-jdk AS tools\nENV A=1\nFROM tools\nENV B="$A 2" C=$NOWHERE\n'
        "ENV PATH=/opt/x/bin:$PATH\nENV DEBIAN_FRONTEND=noninteractive\n"
    )
    made.edit("environment/Dockerfile", "COPY prepare.sh", "ENV D $B\nCOPY prepare.sh")
    made.edit("tests/test.sh", "export CI=true", 'HOST=h\nexport PATH=/y:$PATH E="$D-$HOST"')
    made.edit("tests/test.sh", COMMAND, f"F=6 {COMMAND}")
    done = kbench(made, "--yes", "--env", "G=7", "--env", "A=one")
    assert "stands on eclipse-temurin:17-jdk in the end" in done.output
    assert verify_of(made.task())["environment"] == {
        "A": "one",
        "B": "1 2",
        "PATH": "/y:/opt/x/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "D": "1 2",
        "E": "1 2-h",
        "GRADLE_OPTS": "-Xmx512m -Dorg.gradle.daemon=false",
        "F": "6",
        "G": "7",
    }


@pytest.mark.parametrize(
    ("collected", "globs"),
    [
        ("cp app/build/test-results/test/*.xml /logs/v/", ["app/build/test-results/test/*.xml"]),
        ("find . -name 'TEST-*.xml' -exec cp {} /logs/v \\;", ["**/TEST-*.xml"]),
        ("find /logs/v -name 'TEST-*.xml'; ls */target/surefire-reports/*.xml",
         ["**/target/surefire-reports/*.xml"]),
        ("find . -path '*/build/test-results/*' -name 'TEST*.xml' -not -path '*/it/*'",
         ["**/build/test-results/**/TEST*.xml", "!**/it/**"]),
        ('for f in "$1"/*/build/test-results/*/TEST*.xml; do cp "$f" /logs/v; done',
         ["**/build/test-results/*/TEST*.xml"]),
    ],
)  # fmt: skip
def test_reports_are_looked_for_where_the_collector_did(
    made: Foreign, collected: str, globs: list[str]
) -> None:
    (made.task() / "tests/kotlin_logs_collector.sh").write_text(f"#!/bin/bash\n{collected}\n")
    assert verify_of(hardened(made))["reports"] == globs


def test_reports_that_nothing_names_must_be_given(made: Foreign) -> None:
    (made.task() / "tests/kotlin_logs_collector.sh").write_text('tar -cf "$2/all.tar" "$1"\n')
    refused = kbench(made, "--yes")
    assert refused.exit_code == 1
    assert "says where the JUnit reports are" in refused.output
    assert "--reports GLOB" in refused.output
    assert verify_of(hardened(made, "--reports", "out/*.xml"))["reports"] == ["out/*.xml"]


def test_what_the_fix_changes_is_not_protected(made: Foreign) -> None:
    fix = made.task() / "solution/fix.patch"
    fix.write_text(
        fix.read_text() + "diff --git a/app/build.gradle b/app/build.gradle\nnew file mode 100644\n"
        "--- /dev/null\n+++ b/app/build.gradle\n@@ -0,0 +1 @@\n+plugins {}\n"
    )
    assert verify_of(hardened(made))["protected"]["globs"][-1] == "!app/build.gradle"


def test_a_dockerfile_without_an_older_seal_comes_to_the_same(tmp_path: Path) -> None:
    made = make(tmp_path, tasks=(TASK,), seal="")
    dockerfile = (hardened(made) / "environment/Dockerfile").read_text()
    assert dockerfile == DOCKERFILE_AFTER.replace("BASE", made.bases[TASK])
    assert kbench(made, "--check").exit_code == 0


@pytest.mark.parametrize(
    ("swallowed", "loud"),
    [
        ("RUN apt-get update; apt-get install -y tmux || true",
         "RUN set -e; apt-get update; apt-get install -y tmux"),
        ("RUN apt-get update && \\\n    apt-get install -y tmux \\\n    || true",
         "RUN apt-get update && \\\n    apt-get install -y tmux"),
        ("RUN pip install pytest", "RUN pip install pytest"),
        ("RUN apt-get install -y tmux && rm -rf /var/lib/apt/lists/* || :",
         "RUN apt-get install -y tmux && rm -rf /var/lib/apt/lists/*"),
    ],
)  # fmt: skip
def test_an_installation_that_fails_stops_the_build(
    tmp_path: Path, swallowed: str, loud: str
) -> None:
    made = make(tmp_path, tasks=(TASK,), tooling=swallowed)
    assert f"\n{loud}\n\n" in (hardened(made) / "environment/Dockerfile").read_text()


def test_preparing_and_sealing_stop_the_build_too(made: Foreign) -> None:
    made.edit("environment/Dockerfile", "bash /home/prepare.sh", "bash /home/prepare.sh || true")
    made.edit("environment/Dockerfile", "sh /home/adder", "sh /home/adder || true")
    dockerfile = (hardened(made) / "environment/Dockerfile").read_text()
    assert "\nRUN bash /home/prepare.sh\n" in dockerfile
    assert "true" not in dockerfile


def test_history_may_be_left_out(made: Foreign) -> None:
    task = hardened(made, "--history", "none")
    assert f"{made.bases[TASK]} none\n" in (task / "environment/Dockerfile").read_text()


def test_without_the_upstream_it_says_how_to_give_it(made: Foreign) -> None:
    before = contents(made.root)
    done = kbench(made, "--yes", upstream=False)
    assert done.exit_code == 1
    assert f"no repository at hand holds the commit {made.bases[TASK]}" in done.output
    assert "--repository" in done.output
    assert contents(made.root) == before


def test_what_is_said_of_many_tasks_is_said_once(made: Foreign) -> None:
    for number in range(70, 75):
        shutil.copytree(made.task(), made.task(f"acme_adder-{number}"))
    output = kbench(made, "--check", upstream=False).output
    assert output.count("[harden/no-upstream]") == 1
    assert "refused  tests/verify.json of 6 tasks: base_commit: no repository at hand" in output
    assert "acme_adder-7, acme_adder-70, acme_adder-71, acme_adder-72 and 2 more\n" in output
    assert "6 refused" in output


def test_a_patch_that_does_not_fit_its_base_refuses_the_task(made: Foreign) -> None:
    made.edit("tests/test.patch", " check zero", " check nought")
    done = kbench(made, "--yes")
    assert done.exit_code == 1
    assert "doesn't apply to" in done.output


def test_a_folder_of_upstreams_serves_all_tasks(tmp_path: Path) -> None:
    made = make(tmp_path)
    arguments = ["--upstream", str(tmp_path / "upstream"), "--yes"]
    done = kbench(made, *arguments, upstream=False)
    assert done.exit_code == 0, done.output
    assert "2 hardened" in done.output
    # What two tasks share is shown once.
    assert done.output.count("+++ b/tasks/acme_adder-9/tests/verify_checkout.py") == 0
    assert "same     tasks/acme_adder-9/tests/verify_checkout.py: the change shown for" in (
        done.output
    )


def test_sync_renews_the_shipped_files_of_hardened_tasks(tmp_path: Path) -> None:
    made = make(tmp_path)
    kbench(made, "--upstream", str(tmp_path / "upstream"), "--yes", upstream=False)
    for task in TASKS:
        made.edit("tests/junit_compare.py", "import", "import  ", task=task)
        (made.task(task) / "solution/solve.sh").unlink()
    synced = sync(made.root, TASKS)
    assert [s.changed for s in synced] == [("solution/solve.sh", "tests/junit_compare.py")] * 2
    assert kbench(made, "--check", upstream=False).exit_code == 0


def test_the_shipped_dataset_has_nothing_to_harden() -> None:
    done = CliRunner().invoke(cli, ["harden", "--check", "--root", str(PROJECT)])
    assert (done.exit_code, done.output) == (0, "12 nothing to do\n")


def test_a_task_of_another_form_is_left_alone(made: Foreign) -> None:
    for place in ("tests/test.patch", "tests/expected_tests.json", "environment/prepare.sh"):
        (made.task() / place).unlink()
    done = kbench(made, "--yes")
    assert done.exit_code == 1
    assert f"refused  tasks/{TASK}: isn't in the older shape" in done.output


def test_links_and_large_files_are_refused(made: Foreign) -> None:
    (made.task() / "tests/junit_compare.py").unlink()
    (made.task() / "tests/junit_compare.py").symlink_to("/etc/hostname")
    done = kbench(made, "--yes")
    assert "tests/junit_compare.py: is a link" in done.output
    (made.task() / "tests/junit_compare.py").unlink()
    (made.task() / "tests/test.sh").write_bytes(b"#" * (1 << 17))
    assert "test.sh: has 131,072 bytes" in kbench(made, "--yes").output
    assert not (made.task() / "tests/verify.json").exists()


TEST = f"tasks/{TASK}/tests/test.sh"


def test_machines_get_json(made: Foreign) -> None:
    made.edit("tests/test.sh", "git apply", "sed -i s/a/b/ x\ngit apply")
    found = json.loads(kbench(made, "--format", "json", "--check").output)
    assert schemas.problems("harden", found) == ()
    assert (found["version"], found["written"], found["bases"]) == (1, False, [])
    (task,) = found["tasks"]
    assert (task["task"], task["state"], task["files"]) == (TASK, "refused", [])
    (refusal,) = task["refusals"]
    assert (refusal["file"], refusal["where"]) == (f"tasks/{TASK}/tests/test.sh", "line 7")
    made.edit("tests/test.sh", "sed -i s/a/b/ x\n", "")
    found = json.loads(kbench(made, "--format", "json", "--yes").output)
    assert schemas.problems("harden", found) == ()
    assert [file["file"] for file in found["bases"]] == [
        "bases/manifest",
        "bases/adder/Dockerfile.jdk17-tools",
    ]
    (task,) = found["tasks"]
    assert task["state"] == "hardened"
    changes: Mapping[str, str] = {f["file"]: f["change"] for f in task["files"]}
    assert (changes[f"tasks/{TASK}/tests/verify.json"], changes[TEST]) == ("new", "changed")
    assert "-exit_code=$?" in next(f for f in task["files"] if f["file"] == TEST)["diff"]


def test_colours_are_for_terminals_and_those_who_want_them(
    made: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[" not in kbench(made).output
    assert "\x1b[32m+" in kbench(made, color=True).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in kbench(made, color=True).output


def test_what_a_terminal_would_obey_is_shown_as_text(made: Foreign) -> None:
    path = made.task() / "tests/test.sh"
    path.write_text(path.read_text().replace("# All", "# \x1b[2J\x07All"))
    assert "\x1b" not in kbench(made).output
    assert "-# \\x1b[2J\\x07All modules" in kbench(made).output


def test_a_task_is_written_whole_or_not_at_all(made: Foreign) -> None:
    old = (made.task() / "tests/test.sh").read_bytes()
    edits = (
        Edit(file=TEST, old=old, new=b"new\n"),
        Edit(file="bases/new", old=None, new=b"{}\n"),
        Edit(file="bases/new/below-a-file", old=None, new=b"never\n"),
    )
    before = contents(made.root)
    with pytest.raises(KbenchError, match="can't be written"):
        write(made.root, Hardened(subject=TASK, edits=edits))
    assert contents(made.root) == before


def test_a_file_that_changed_while_the_diff_was_read_is_not_overwritten(made: Foreign) -> None:
    edit = Edit(file=TEST, old=b"what was looked at\n", new=b"new\n")
    before = contents(made.root)
    with pytest.raises(KbenchError, match="has changed meanwhile"):
        write(made.root, Hardened(subject=TASK, edits=(edit,)))
    assert contents(made.root) == before


@pytest.mark.parametrize(
    ("answer", "option", "asked", "code"),
    [(b"y\n", (), True, 0), (b"n\n", (), True, 1), (b"y\n", ("--check",), False, 1)],
)
def test_a_person_at_a_terminal_is_asked(
    made: Foreign, answer: bytes, option: tuple[str, ...], asked: bool, code: int
) -> None:
    ours, theirs = pty.openpty()
    before = contents(made.root)
    command = [sys.executable, "-c", "from kbench_build.cli import main; main()", "harden"]
    arguments = ["--root", str(made.root), "--repository", str(made.upstream), *option]
    with subprocess.Popen(
        [*command, *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    ) as run:
        os.write(ours, answer)
        output = run.communicate(timeout=60)[0].decode()
    os.close(ours)
    os.close(theirs)
    assert ("Write these 13 files of 1 tasks?" in output) == asked
    assert (run.returncode, contents(made.root) == before) == (code, bool(code)), output


def planned(files: Mapping[str, bytes]) -> Plan:
    shipped = {place: (RUNTIME / name).read_bytes() for place, name in SHIPPED.items()}
    options = Options(namespace="kotlin-bench")
    bases = {"kotlin-bench/adder:jdk17": BASE_DOCKERFILE}
    return plan(TASK, files, unread={}, shipped=shipped, bases=bases, options=options)


def files_of(made: Foreign) -> dict[str, bytes]:
    folder = made.task()
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


PLACES = st.sampled_from(
    ["task.toml", "tests/test.sh", "environment/prepare.sh", "environment/Dockerfile"]
)
SCRAPS = st.text("aA=$(){}|&;<>\"'`\\\n\t #*?![]0/.-\r\x00\u2028é", max_size=12)


@settings(max_examples=100)
@given(place=PLACES, at=st.floats(0, 1), scrap=SCRAPS, cut=st.integers(0, 12))
def test_no_text_makes_it_raise_and_what_it_proposes_it_accepts(
    template: Foreign, place: str, at: float, scrap: str, cut: int
) -> None:
    files = files_of(template)
    data = files[place]
    spot = int(at * len(data))
    files[place] = data[:spot] + scrap.encode() + data[spot + cut :]
    first = planned(files)
    assert bool(first.refusals) != bool(first.texts)
    if first.texts:
        again = planned(
            {**files, **first.texts, "tests/verify.json": json.dumps(first.verify).encode()}
        )
        assert again.refusals == ()
        assert {**first.texts, **again.texts} == first.texts


@pytest.mark.parametrize("place", ["task.toml", "tests/test.sh", "environment/prepare.sh"])
@pytest.mark.parametrize(
    "text", ["$(" * 30_000, '"' * 60_000, "a\n" * 30_000, "A=x\n" + "A=$A$A\n" * 9_000]
)
def test_hostile_texts_cost_little_and_say_little(template: Foreign, place: str, text: str) -> None:
    started = time.process_time()
    found = planned({**files_of(template), place: text.encode()})
    assert time.process_time() - started < 5
    assert 0 < len(found.refusals) <= 50
