"""Every way to cheat the shipped verifier that we know of, tried on the shipped files.

No solution never scores 1, and the gold patch never scores 0, whatever else an agent did: honestly,
clumsily or in bad faith.
"""

import os
import time
from pathlib import Path

import pytest

from tests.verifier_box import WORKDIR, Box, copy_box, git, make_box, usable


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Box:
    if not usable():
        reason = "namespaces can't be made here (root and unshare are needed)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return make_box(tmp_path_factory.mktemp("verifier") / "box")


@pytest.fixture
def box(template: Box, tmp_path: Path) -> Box:
    return copy_box(template, tmp_path / "box")


FORGED = (
    "<testsuite>"
    '<testcase classname="app.CalcTest" name="adds two numbers"/>'
    '<testcase classname="app.CalcTest" name="keeps"/>'
    '<testcase classname="core.WordsTest" name="joins \u201cquotes\u201d &amp; spaces"/>'
    '<testcase classname="core.WordsTest" name="was skipped"/>'
    '<testcase classname="core.NewTest" name="appears[1]"/>'
    "</testsuite>"
)
FORGE = f"""
from pathlib import Path
def forge(place="app/build/test-results/test/TEST-CalcTest.xml"):
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text({FORGED!r}, encoding="utf-8")
"""

# So that the verifier must go to the repository for what the base holds.
EDITS = "echo 'TESTS = []' > app/src/test/CalcTest.py; echo > build.py; "

# What an agent does that must change nothing: bash, run in the checkout before the verifier.
TRICKS = {
    "nothing": "",
    "commits its work": "git -c user.name=a -c user.email=a@b commit --allow-empty -qam work",
    "commits on another branch": (
        "git checkout -qb work && git -c user.name=a -c user.email=a@b commit --allow-empty -qam w"
    ),
    "edits a hidden test file": "echo 'TESTS = []' > app/src/test/CalcTest.py",
    "adds its own test at the end of the same class": (
        "printf 'def mine():\\n    pass\\n\\n\\nTESTS.append((\"mine\", mine))\\n'"
        " >> app/src/test/CalcTest.py"
    ),
    "adds the hidden test file itself": "echo 'TESTS = []' > core/src/test/NewTest.py",
    "deletes the tests": "rm -r app/src/test core/src/test",
    "puts a folder in a test file's place": (
        "rm app/src/test/CalcTest.py; mkdir -p app/src/test/CalcTest.py/x"
    ),
    "puts a pipe in a test file's place": (
        "rm app/src/test/CalcTest.py; mkfifo app/src/test/CalcTest.py"
    ),
    "makes the tests read-only": "chmod -R a-w app/src/test; chmod 0 app/src/test/CalcTest.py",
    "commits an edit that blocks the hidden patch": (
        "echo 'TESTS = []' > app/src/test/CalcTest.py;"
        " git -c user.name=a -c user.email=a@b commit -qam block"
    ),
    "puts a link in a test file's place": (
        "echo 'TESTS = []' > /tmp/t.py; ln -sf /tmp/t.py app/src/test/CalcTest.py"
    ),
    "puts a link in the test folder's place": (
        "mkdir /tmp/evil; echo 'TESTS = []' > /tmp/evil/CalcTest.py;"
        " rm -r app/src/test; ln -s /tmp/evil app/src/test"
    ),
    "puts a link above the test folder": (
        "mkdir -p /tmp/evil; cp -r core/src /tmp/evil/; echo 'TESTS = []' >"
        " /tmp/evil/src/test/WordsTest.py; rm -r core/src; ln -s /tmp/evil/src core/src"
        "; cp -r /tmp/evil/src/main /tmp/main; rm core/src; mkdir core/src;"
        " cp -r /tmp/main core/src/; ln -s /tmp/evil/src/test core/src/test"
    ),
    "rewrites the build script": "echo 'print(1)' > build.py",
    "adds a test of its own that reports forged cases": (
        f"cat > core/src/test/ForgeTest.py <<'END'\n{FORGE}\n"
        'def mine():\n    forge("core/build/test-results/test/TEST-Forged.xml")\n'
        'TESTS = [("mine", mine)]\nEND'
    ),
    "hides edits from the index": (
        "git update-index --skip-worktree app/src/test/CalcTest.py;"
        " git update-index --assume-unchanged core/src/test/WordsTest.py;"
        " echo 'TESTS = []' > app/src/test/CalcTest.py"
    ),
    "empties the index": EDITS + "rm .git/index; echo junk > .git/index",
    "plants attributes": EDITS
    + (
        "echo '* text eol=crlf filter=evil' > .gitattributes; mkdir -p .git/info;"
        " echo '* filter=evil -diff' > .git/info/attributes;"
        " git config filter.evil.smudge 'touch /tmp/ran; cat'; "
        " git config filter.evil.clean 'touch /tmp/ran; cat'"
    ),
    "plants configuration": EDITS
    + (
        "printf '#!/bin/sh\\ntouch /tmp/ran\\n' > /tmp/evil; chmod +x /tmp/evil;"
        " git config core.fsmonitor /tmp/evil; git config core.pager /tmp/evil;"
        " git config apply.whitespace error-all; git config core.autocrlf true;"
        " git config core.worktree /nonexistent; git config diff.external /tmp/evil;"
        " git config extensions.partialClone origin; git config remote.origin.url /nonexistent;"
        " git config core.sshCommand /tmp/evil; git config uploadpack.packObjectsHook /tmp/evil"
    ),
    "breaks the configuration": EDITS + "echo '[[[' > .git/config",
    "plants hooks": EDITS
    + (
        "for hook in post-checkout pre-commit post-index-change reference-transaction; do"
        " printf '#!/bin/sh\\ntouch /tmp/ran\\n' > .git/hooks/$hook;"
        " chmod +x .git/hooks/$hook; done"
    ),
    "replaces the tests' objects": EDITS
    + (
        "id=$(echo 'TESTS = []' | git hash-object -w --stdin);"
        " git replace $(git rev-parse HEAD:app/src/test/CalcTest.py) $id"
    ),
    "corrupts the tests' objects": (
        "id=$(git rev-parse HEAD:core/src/test/WordsTest.py);"
        " other=$(git rev-parse HEAD:build.py);"
        " chmod u+w .git/objects/${id:0:2}/${id:2};"
        " cp .git/objects/${other:0:2}/${other:2} .git/objects/${id:0:2}/${id:2}"
    ),
    "plants a repository above": EDITS
    + ("git init -q /tmp; git init -q /; git -C / config core.fsmonitor /nonexistent"),
    "leaves a git folder in a subfolder": "git init -q app; git init -q core/src/test",
    "plants stale reports": (
        f"mkdir -p {{app,core,x}}/build/test-results/test; cat > /tmp/f <<'END'\n{FORGED}\nEND\n"
        "for m in app core x; do cp /tmp/f $m/build/test-results/test/TEST-Old.xml; done"
    ),
    "links the reports' folder to forged ones": (
        f"mkdir -p /tmp/evil app/build; cat > /tmp/evil/TEST-Forged.xml <<'END'\n{FORGED}\nEND\n"
        "mkdir -p app/build/test-results; ln -s /tmp/evil app/build/test-results/test;"
        " mkdir -p /tmp/more/test-results/test core;"
        " cp /tmp/evil/TEST-Forged.xml /tmp/more/test-results/test/; ln -s /tmp/more core/build"
    ),
    "writes the reward beforehand": (
        "echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"
    ),
    "links the reward elsewhere": "ln -s /tmp/elsewhere /logs/verifier/reward.txt",
    "puts folders in the reward's place": (
        "mkdir -p /logs/verifier/{reward.txt,report.json,reward.json,reports}/x"
    ),
    "puts a pipe in the reward's place": "mkfifo /logs/verifier/{reward.txt,report.json}",
    "links the log folder elsewhere": (
        "mkdir /tmp/logs; rmdir /logs/verifier; ln -s /tmp/logs /logs/verifier"
    ),
    "rewrites the reward in the background": (
        "setsid bash -c 'while :; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt;"
        " echo 1 > /logs/verifier/reward.json; done' >/dev/null 2>&1 & sleep 0.1"
    ),
    "breeds processes in the background": (
        "cat > /tmp/breed.sh <<'END'\n"
        "echo 1 > /logs/verifier/reward.txt; sleep 0.05; setsid bash /tmp/breed.sh &\n"
        "END\nsetsid bash /tmp/breed.sh >/dev/null 2>&1 & sleep 0.2"
    ),
    "rewrites the tests in the background": (
        "setsid bash -c 'while :; do echo TESTS=[] > app/src/test/CalcTest.py;"
        " echo TESTS=[] > core/src/test/NewTest.py; done' >/dev/null 2>&1 & sleep 0.1"
    ),
    "plants modules beside the verifier": (
        "mkdir -p /tests/xml /tests/__pycache__; cd /tests; echo 'raise SystemExit(0)' |"
        " tee json.py xml/__init__.py subprocess.py contextlib.py /tmp/evil.py >/dev/null;"
        " python3 -c 'import py_compile, sys; py_compile.compile("
        '"/tmp/evil.py", cfile=f"__pycache__/junit_compare.cpython-{sys.version_info[0]}"'
        ' f"{sys.version_info[1]}.pyc", invalidation_mode='
        "py_compile.PycInvalidationMode.UNCHECKED_HASH)'; cd -"
    ),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_no_solution_scores_0(box: Box, trick: str) -> None:
    graded = box.grade(TRICKS[trick])
    assert graded.reward == "0", graded.output
    assert (graded.report["outcome"], graded.code) == ("unresolved", 0), graded.output
    assert "app.CalcTest.adds two numbers" in graded.report["failed"]
    assert not (box.root / "tmp" / "ran").exists()


@pytest.mark.parametrize("trick", TRICKS)
def test_gold_scores_1(box: Box, trick: str) -> None:
    box.solve()
    graded = box.grade(TRICKS[trick])
    assert graded.reward == "1", graded.output
    assert (graded.report["outcome"], graded.code) == ("resolved", 0), graded.output


# What a program under test does while the tests run it: Python, put into the agent's own module.
WHILE_RUNNING = {
    "writes the reward": (
        "import os\n"
        "open('/logs/verifier/reward.txt', 'w').write('1\\n')\n"
        "open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')\n"
    ),
    "writes a report of a solved task": (
        "import json\nopen('/logs/verifier/report.json', 'w').write(json.dumps({'reward': 1}))\n"
    ),
    "moves the log folder": (
        "import os, shutil\n"
        "shutil.rmtree('/logs/verifier', ignore_errors=True)\n"
        "os.makedirs('/tmp/l', exist_ok=True)\n"
        "os.path.islink('/logs/verifier') or os.symlink('/tmp/l', '/logs/verifier')\n"
        "open('/tmp/l/reward.json', 'w').write('1')\n"
    ),
    "leaves a process that rewrites the reward later": (
        "import subprocess\n"
        "subprocess.Popen(['setsid', 'bash', '-c', 'trap \"\" TERM HUP; while :; do sleep 0.02;"
        " echo 1 > /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json; done'])\n"
    ),
    "rewrites the verifier": (
        "for name in ('junit_compare.py', 'verify_checkout.py', 'test.sh',"
        " 'kotlin_logs_collector.sh'):\n"
        "    open('/tests/' + name, 'w').write('echo 1 > /logs/verifier/reward.txt; exit')\n"
        "open('/tests/expected_tests.json', 'w').write('{\"f2p_tests\": []}')\n"
        "open('/tests/verify.json', 'w').write('{}')\n"
    ),
    "kills everything that it can": (
        "import os\ntry:\n    os.kill(-1, 9)\nexcept OSError:\n    pass\n"
    ),
}


@pytest.mark.parametrize("deed", WHILE_RUNNING)
def test_a_program_under_test_gains_nothing(box: Box, deed: str) -> None:
    module = box.checkout / "core" / "src" / "main" / "words.py"
    module.write_text(f"{WHILE_RUNNING[deed]}\n{module.read_text()}")
    graded = box.grade_alone()
    assert graded.reward == "0", graded.output
    assert (graded.report["outcome"], graded.code) == ("unresolved", 0), graded.output


@pytest.mark.parametrize("deed", [d for d in WHILE_RUNNING if "kills" not in d])
def test_gold_survives_such_a_program(box: Box, deed: str) -> None:
    box.solve()
    module = box.checkout / "core" / "src" / "main" / "words.py"
    module.write_text(f"{WHILE_RUNNING[deed]}\n{module.read_text()}")
    assert box.grade_alone().reward == "1"


def test_the_verifiers_memory_is_closed_to_the_program(box: Box) -> None:
    deed = (
        "try:\n"
        "    open('/proc/1/mem', 'r+b')\n"
        "    print('the memory is open')\n"
        "except PermissionError:\n"
        "    print('refused')\n"
    )
    module = box.checkout / "core" / "src" / "main" / "words.py"
    module.write_text(f"{deed}\n{module.read_text()}")
    assert "refused" in box.grade_alone().output.splitlines()


def test_a_reward_stays_as_it_was_written(box: Box) -> None:
    module = box.checkout / "core" / "src" / "main" / "words.py"
    deed = WHILE_RUNNING["leaves a process that rewrites the reward later"]
    module.write_text(f"{deed}\n{module.read_text()}")
    after = (
        "sleep 0.5; cat /logs/verifier/reward.txt; ls /logs/verifier; ls /proc | grep -c '^[0-9]'"
    )
    assert box.grade(after=after).reward == "0"


def test_tests_that_change_while_they_run_score_0(box: Box) -> None:
    box.solve()
    module = box.checkout / "core" / "src" / "main" / "words.py"
    deed = "open('core/src/test/WordsTest.py', 'a').write('\\n')\n"
    module.write_text(f"{deed}\n{module.read_text()}")
    graded = box.grade()
    assert graded.reward == "0"
    assert graded.report["outcome"] == "unresolved"
    assert graded.kinds == {"tests-changed"}
    assert "core/src/test/WordsTest.py" in graded.report["errors"][0]["message"]


def test_a_broken_build_without_reports_scores_0(box: Box) -> None:
    box.solve()
    (box.checkout / "app" / "src" / "main" / "calc.py").write_text("def add(a, b:\n")
    graded = box.grade()
    assert (graded.reward, graded.report["outcome"]) == ("0", "unresolved")
    assert graded.kinds == {"no-reports"}
    assert graded.report["command"]["exit_code"] == 1
    assert len(graded.report["missing"]) == 5


def test_a_broken_build_with_stale_reports_scores_0(box: Box) -> None:
    (box.checkout / "app" / "src" / "main" / "calc.py").write_text("def add(a, b:\n")
    graded = box.grade(TRICKS["plants stale reports"])
    assert (graded.reward, graded.kinds) == ("0", {"no-reports"})


def test_a_failing_parameterised_case_is_not_dropped(box: Box) -> None:
    """The same id twice in one report: the worst status counts, and the repeat is on record."""
    box.solve()
    source = (box.tests / "test.patch").read_text()
    with_repeat = source.replace(
        '+TESTS = [("appears[1]", appears)]',
        '+TESTS = [("appears[1]", appears), ("appears[1]", lambda: 1 / 0)]',
    )
    assert with_repeat != source
    _retell(box, with_repeat, "core/src/test/NewTest.py")
    graded = box.grade()
    assert graded.reward == "0"
    assert graded.report["failed"] == ["core.NewTest.appears[1]"]
    assert graded.report["counts"] == {"core.NewTest.appears[1]": 2}


def _retell(box: Box, patch: str, path: str) -> None:
    """Put another hidden patch in place, with the blob that it makes of `path`."""
    (box.tests / "test.patch").write_text(patch)
    clone = box.root / "clone"
    git(box.root, "clone", "--quiet", str(box.checkout), str(clone))
    git(clone, "apply", "--index", str(box.tests / "test.patch"))
    blob = git(clone, "hash-object", path).decode().strip()
    hidden = box.data()["hidden"]
    hidden[path]["after"] = f"100644 {blob}"
    box.edit_data(hidden=hidden)


def test_shims_on_the_path_are_not_called(box: Box) -> None:
    shims = box.root / "shims"
    shims.mkdir()
    for name in ("python3", "git", "bash", "env", "cp", "rm", "mkdir", "dirname"):
        (shims / name).write_text("#!/bin/sh\ntouch /tmp/shimmed\nexit 0\n")
        (shims / name).chmod(0o755)
    path = {"PATH": "/shims:/usr/bin:/bin"}
    done = box.run("/usr/bin/bash", "/tests/test.sh", env=path)
    graded = box.graded(done.returncode, done.stdout.decode())
    assert (graded.reward, graded.report["outcome"]) == ("0", "unresolved")
    assert len(graded.report["tests"]) == 5
    assert not (box.root / "tmp" / "shimmed").exists()


def test_shims_in_usr_local_bin_are_not_called(box: Box) -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("this machine's only python3 is in /usr/local/bin")
    shims = box.root / ".shims"
    shims.mkdir()
    for name in ("python3", "git", "env", "cp", "rm"):
        (shims / name).write_text("#!/bin/sh\ntouch /tmp/shimmed\nexit 0\n")
        (shims / name).chmod(0o755)
    box.solve()
    graded = box.grade()
    assert graded.reward == "1", graded.output
    assert not (box.root / "tmp" / "shimmed").exists()


def test_a_hostile_environment_is_dropped(box: Box) -> None:
    evil = box.root / "evil"
    (evil / "json").mkdir(parents=True)
    for name in ("sitecustomize.py", "usercustomize.py", "json/__init__.py", "startup.py"):
        (evil / name).write_text("open('/tmp/evil-ran', 'w')\nraise SystemExit(0)\n")
    hostile = {
        "PYTHONPATH": "/evil",
        "PYTHONSTARTUP": "/evil/startup.py",
        "PYTHONHOME": "/evil",
        "GIT_DIR": "/evil",
        "GIT_WORK_TREE": "/evil",
        "GIT_INDEX_FILE": "/evil/index",
        "GIT_OBJECT_DIRECTORY": "/evil",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": "touch /tmp/evil-ran",
        "LD_PRELOAD": "/evil/nothing.so",
        "BASH_FUNC_git%%": "() { touch /tmp/evil-ran; }",
        "CDPATH": "/evil",
        "HOME": "/evil",
        "TMPDIR": "/evil/none",
    }
    box.solve()
    words = "python3 build.py; echo; tr '\\0' '\\n' < /proc/$PPID/environ"
    box.edit_data(command=["bash", "-c", words])
    done = box.run("bash", "/tests/test.sh", env=hostile)
    graded = box.graded(done.returncode, done.stdout.decode())
    assert graded.reward == "1", graded.output
    assert "LANG=C.UTF-8" in graded.output
    assert "evil" not in graded.output.partition("building")[2]
    assert not (box.root / "tmp" / "evil-ran").exists()


def test_python3_missing_is_a_named_error(box: Box) -> None:
    (box.root / ".no-python3").touch()
    box.edit_data(command=["true"])
    graded = box.grade(f"mkdir -p app/build; echo '{FORGED}' > app/build/TEST-x.xml")
    assert (graded.reward, graded.report["outcome"]) == ("0", "verifier-error")
    assert graded.kinds == {"tools"}
    assert "python3" in graded.report["errors"][0]["message"]
    assert graded.code == 1


def test_python3_missing_and_a_process_that_rewrites_the_reward(box: Box) -> None:
    (box.root / ".no-python3").touch()
    before = TRICKS["rewrites the reward in the background"]
    graded = box.grade(before, after="sleep 0.3; cat /logs/verifier/reward.txt")
    assert (graded.reward, graded.kinds) == ("0", {"tools"})


def test_a_process_with_a_misleading_name_is_ended(box: Box) -> None:
    """The name stands in parentheses before the fields that tell a session."""
    (box.root / ".no-python3").touch()
    script = "cp /usr/bin/bash '/tmp/) S 0 0 0 0'; setsid '/tmp/) S 0 0 0 0' -c 'while :; do"
    script += " echo 1 > /logs/verifier/reward.txt; done' >/dev/null 2>&1 & sleep 0.1"
    assert box.grade(script, after="sleep 0.3").reward == "0"


def test_a_race_for_the_rewards_place_gains_nothing(box: Box) -> None:
    """Folders and pipes that reappear must not end the verifier before it has ended their maker."""
    script = (
        "setsid bash -c 'while :; do mkdir /logs/verifier/reward.txt; rm -rf /logs/verifier/*;"
        " mkfifo /logs/verifier/reward.txt; rm -f /logs/verifier/*; done' >/dev/null 2>&1 &"
        " sleep 0.1"
    )
    graded = box.grade(script, after="sleep 0.3")
    assert (graded.reward, graded.report["outcome"]) == ("0", "unresolved")


def test_a_missing_repository_is_a_named_error(box: Box) -> None:
    box.solve()
    graded = box.grade("rm -rf .git app/src/test")
    assert (graded.reward, graded.report["outcome"]) == ("0", "verifier-error")
    assert graded.kinds == {"restore"}


def test_a_damaged_object_is_not_believed(box: Box) -> None:
    """What git says of the base's content is hashed again."""
    box.solve()
    before = TRICKS["corrupts the tests' objects"]
    graded = box.grade(f"{before}; echo 'TESTS = []' > core/src/test/WordsTest.py")
    assert (graded.reward, graded.report["outcome"]) == ("0", "verifier-error")
    assert graded.kinds == {"restore"}
    assert "core/src/test/WordsTest.py" in graded.report["errors"][0]["message"]


def test_a_missing_checkout_is_a_named_error(box: Box) -> None:
    graded = box.grade(f"cd /; rm -rf /{WORKDIR}")
    assert (graded.reward, graded.kinds) == ("0", {"checkout"})


def test_a_linked_checkout_is_a_named_error(box: Box) -> None:
    graded = box.grade(f"cd /; mv /{WORKDIR} /tmp/up; ln -s /tmp/up /{WORKDIR}")
    assert (graded.reward, graded.kinds) == ("0", {"checkout"})


def test_a_time_out_kills_everything_and_scores_0(box: Box) -> None:
    box.solve()
    box.edit_data(timeout_sec=2)
    calc = box.checkout / "app" / "src" / "main" / "calc.py"
    deed = (
        "import subprocess\n"
        "subprocess.Popen(['setsid', 'sleep', '1000'])\n"
        "subprocess.run(['sleep', '1000'])\n"
    )
    calc.write_text(deed + calc.read_text())
    start = time.monotonic()
    graded = box.grade(after="ls -l /proc/[0-9]*/exe | grep sleep && echo still there")
    assert time.monotonic() - start < 15
    assert (graded.reward, graded.report["outcome"]) == ("0", "timeout")
    assert graded.report["command"]["exit_code"] is None
    assert "still there" not in graded.output
    assert graded.code == 0


def test_a_time_out_scores_0_even_with_all_reports_there(box: Box) -> None:
    box.solve()
    box.edit_data(timeout_sec=3, command=["bash", "-c", "python3 build.py; sleep 60"])
    graded = box.grade()
    assert (graded.reward, graded.report["outcome"]) == ("0", "timeout")
    assert graded.report["missing"] == graded.report["failed"] == []


def test_endless_output_is_cut(box: Box) -> None:
    box.solve()
    words = "python3 build.py; head -c 80000000 /dev/zero | tr '\\0' x"
    box.edit_data(command=["bash", "-c", words])
    graded = box.grade()
    assert graded.reward == "1"
    assert len(graded.output) < 40_000_000
    assert "left out" in graded.output


def test_a_pipe_in_a_reports_place_blocks_nothing(box: Box) -> None:
    box.solve()
    words = "python3 build.py; mkfifo app/build/test-results/test/TEST-pipe.xml"
    box.edit_data(command=["bash", "-c", words])
    assert box.grade().reward == "1"


def test_a_report_that_the_command_links_is_not_read(box: Box) -> None:
    words = f"echo '{FORGED}' > /tmp/f.xml; mkdir -p x/build/test-results/test;"
    words += " ln -s /tmp/f.xml x/build/test-results/test/TEST-f.xml"
    box.edit_data(command=["bash", "-c", words])
    assert box.grade().kinds == {"no-reports"}


def test_a_command_that_is_missing_is_a_named_error(box: Box) -> None:
    box.edit_data(command=["gradle", "test"])
    graded = box.grade()
    assert (graded.reward, graded.report["outcome"]) == ("0", "verifier-error")
    assert graded.kinds == {"tools"}
    assert "gradle" in graded.report["errors"][0]["message"]


def test_the_command_sees_only_its_own_environment(box: Box) -> None:
    box.edit_data(command=["env"], environment={"ONLY": "this", "HOME": "/opt"})
    graded = box.grade("export SECRET=1")
    seen = {line for line in graded.output.splitlines() if "=" in line}
    assert {"ONLY=this", "HOME=/opt", "LANG=C.UTF-8"} <= seen
    assert not any(line.startswith(("SECRET", "LC_ALL", "GIT_", "PYTHON")) for line in seen)


def test_the_hidden_patch_must_make_what_it_must(box: Box) -> None:
    box.solve()
    patch = (box.tests / "test.patch").read_text()
    (box.tests / "test.patch").write_text(patch.replace("add(1, 2) == 3", "add(1, 2) == 4"))
    graded = box.grade()
    assert (graded.report["outcome"], graded.kinds) == ("verifier-error", {"post-image"})
    assert "app/src/test/CalcTest.py" in graded.report["errors"][0]["message"]


def test_the_hidden_patch_may_touch_nothing_else(box: Box) -> None:
    box.solve()
    more = "diff --git a/extra b/extra\nnew file mode 100644\n"
    more += "--- /dev/null\n+++ b/extra\n@@ -0,0 +1 @@\n+x\n"
    with (box.tests / "test.patch").open("a") as patch:
        patch.write(more)
    graded = box.grade()
    assert (graded.report["outcome"], graded.kinds) == ("verifier-error", {"post-image"})
    assert "extra" in graded.report["errors"][0]["message"]


def test_a_damaged_hidden_patch_is_a_named_error(box: Box) -> None:
    box.solve()
    (box.tests / "test.patch").write_bytes((box.tests / "test.patch").read_bytes()[:-200])
    graded = box.grade()
    assert (graded.report["outcome"], graded.kinds) == ("verifier-error", {"hidden-patch"})


@pytest.mark.parametrize(
    "name",
    [
        "verify.json",
        "expected_tests.json",
        "test.patch",
        "junit_compare.py",
        "kotlin_logs_collector.sh",
        "verify_checkout.py",
    ],
)
def test_a_missing_file_of_the_verifier_is_a_named_error(box: Box, name: str) -> None:
    box.solve()
    (box.tests / name).unlink()
    graded = box.grade()
    assert (graded.report["outcome"], graded.kinds) == ("verifier-error", {"data"})
    assert name in graded.report["errors"][0]["message"]


def test_modes_binary_files_and_deletions_of_the_hidden_patch_arrive(box: Box) -> None:
    words = "stat -c '%a %n' tools/check.sh; sha1sum core/src/test/bytes.bin; ls core/src/test"
    box.edit_data(command=["bash", "-c", words])
    graded = box.grade("chmod 755 tools/check.sh")
    assert "644 tools/check.sh" in graded.output
    blob = bytes(range(256)) * 3
    assert (box.checkout / "core/src/test/bytes.bin").read_bytes() == blob
    assert not (box.checkout / "core/src/test/old.txt").exists()


def test_line_ends_are_those_of_a_checkout(box: Box) -> None:
    """Marked files have CRLF, as git would write them; what has them already isn't touched."""
    data = box.data()
    data["hidden"]["core/src/test/NewTest.py"]["after"] += " crlf"
    for path in ("build.py", "core/src/test/WordsTest.py"):
        blob = git(box.checkout, "rev-parse", f"HEAD:{path}").decode().strip()
        data["protected"]["files"][path] = f"100644 {blob} crlf"
    data["hidden"]["core/src/test/WordsTest.py"]["after"] += " crlf"
    box.edit_data(**data)
    box.solve()
    build = (box.checkout / "build.py").read_bytes().replace(b"\n", b"\r\n")
    (box.checkout / "build.py").write_bytes(build)
    before = (box.checkout / "build.py").stat().st_mtime_ns
    assert box.grade().reward == "1"
    assert (box.checkout / "build.py").stat().st_mtime_ns == before
    assert b"TESTS = [\r\n" in (box.checkout / "core/src/test/WordsTest.py").read_bytes()
    (box.checkout / "build.py").write_bytes(build.replace(b"\r\n", b"\n", 1))
    assert box.grade().reward == "1"
    assert (box.checkout / "build.py").read_bytes() == build


def test_reports_of_many_modules_are_kept_apart(box: Box) -> None:
    box.solve()
    words = "python3 build.py; cp core/build/test-results/test/TEST-NewTest.xml"
    words += " app/build/test-results/test/TEST-NewTest.xml"
    box.edit_data(command=["bash", "-c", words])
    graded = box.grade()
    assert graded.reward == "1"
    assert len(graded.report["reports"]) == 4
    assert graded.report["counts"] == {"core.NewTest.appears[1]": 2}
    assert len(list((box.logs / "reports").glob("*.xml"))) == 4


def test_the_output_that_the_runner_keeps_in_the_logs_survives(box: Box) -> None:
    """Harbor sends test.sh's output to a file in the log folder."""
    done = box.shell("bash /tests/test.sh > /logs/verifier/test-stdout.txt 2>&1")
    assert done.returncode == 0
    assert "unresolved" in (box.logs / "test-stdout.txt").read_text()


def test_ignored_signals_that_are_handed_down_harm_nothing(box: Box) -> None:
    box.solve()
    assert box.grade("trap '' CHLD PIPE HUP INT TERM").reward == "1"


def test_an_output_that_is_closed_harms_nothing(box: Box) -> None:
    box.solve()
    done = box.shell("bash /tests/test.sh 2>&1 | true; bash /tests/test.sh >&- 2>&-")
    assert box.graded(done.returncode, done.stdout.decode()).reward == "1"
