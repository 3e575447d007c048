"""`kbench mine --emit`: which changes become tasks, what is left alone, and what is said of it."""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from kbench_build import runtime
from kbench_build.commands.mine import mine
from kbench_build.errors import KbenchError
from kbench_build.rim.licences import recognised
from kbench_build.rules import clone_base
from kbench_build.rules.base_inputs import heads_digest
from kbench_build.rules.emit import expected_tests, laid_over, task_id, toml_text
from kbench_build.rules.forge_urls import change_url, commit_url, home_of, issue_url
from kbench_build.rules.licence import licence_of, wanted
from tests import trial_kit

LICENCES = Path(__file__).parent / "data" / "licences"
CONFIG = """
[dataset]
namespace = "mined"

[[mine.environment]]
name = "py"
image = "python:1"
command = ["python3", "-m", "pytest", "{files}"]
reports = ["report.xml"]
environment = { PYTHONPATH = "src dir" }
prepare = ["make built"]
timeout_sec = 30
files = ["test_*.py"]

[mine]
preset = "python-pytest"

[mine.emit.agent]
timeout_sec = 60

[mine.emit.metadata.source]
code_change_url = "https://forge.example.org/acme/text/pulls/{number}"

[[mine.change]]
change = "acme/text#1"
metadata = { difficulty = "easy" }
"""
EXPECTED = {
    "f2p_tests": ["tests.test_1.test"],
    "n2p_tests": [],
    "p2p_tests": [],
    "run_result": {"failed_tests": [], "passed_tests": [], "skipped_tests": []},
    "s2p_tests": [],
    "test_patch_result": {"failed_tests": ["tests.test_1.test"], "passed_tests": []},
}


NAMED = ("--repository", "acme/text")
HOME = "https://github.com/acme/text"


class Said(NamedTuple):
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


class Mined:
    """A dataset, an upstream with two changes, and what is known of them."""

    def __init__(self, folder: Path) -> None:
        self.project = trial_kit.Project(folder)
        mit = (LICENCES / "MIT").read_text(encoding="utf-8")
        self.project.change({"LICENSE": mit})
        for number in (1, 2):
            self.project.pull(
                {
                    f"src/lib{number}.py": f"def lib{number}():\n    return {number}\n" * 2,
                    f"tests/test_{number}.py": f"import lib{number}\n\n\ndef test():\n    pass\n",
                }
            )
        self.clone = str(self.project.upstream.root)
        self.root = folder / "dataset"
        self.root.mkdir()
        self.configure(CONFIG)
        self.run()

    def configure(self, text: str) -> None:
        (self.root / "kbench.toml").write_text(text, encoding="utf-8")

    def run(self, *argv: str, clone: str = "") -> "Said":
        """`kbench mine …`, in this process: most of a command's time is its imports."""
        words = [clone or self.clone, "--root", str(self.root), *argv]
        done = CliRunner().invoke(mine, words)
        if isinstance(done.exception, KbenchError):
            return Said(2, done.stdout, f"error: {done.exception}\n")
        if not isinstance(done.exception, (SystemExit, type(None))):
            raise done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    def keep(self, number: int, **values: Any) -> None:
        for name, value in values.items():
            place = self.root / "mined" / "acme_text" / str(number) / f"{name}.json"
            place.write_text(json.dumps(value), encoding="utf-8")

    def times(self) -> dict[Path, int]:
        """When each file changed, but for candidates and the lock."""
        found = (p for p in self.root.rglob("*") if "mined" not in p.parts and p.suffix != ".lock")
        return {path: path.stat().st_mtime_ns for path in found}

    def ready(self, *numbers: int) -> None:
        for number in numbers:
            self.keep(number, trial=trial(), statement=statement())

    def task(self, number: int) -> Path:
        return self.root / "tasks" / f"acme_text-{number}"

    def toml(self, number: int) -> dict[str, Any]:
        return tomllib.loads((self.task(number) / "task.toml").read_text(encoding="utf-8"))


def trial(**changes: Any) -> dict[str, Any]:
    value = {
        "key": "",
        "environment": "py",
        "merged": 0,
        "outcome": "valid",
        "reason": "",
        "expected": EXPECTED,
        "command": ["python3", "-m", "pytest", "tests/test_1.py"],
    }
    return {**value, **changes}


def statement(**changes: Any) -> dict[str, Any]:
    return {"key": "", "source": "issue", "outcome": "accepted", "text": "# Wrong\n", **changes}


@pytest.fixture
def mined(tmp_path: Path) -> Mined:
    return Mined(tmp_path)


def test_only_what_is_proved_and_stated_becomes_a_task(mined: Mined) -> None:
    mined.ready(1)
    done = mined.run("--emit")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (mined.root / "tasks").iterdir()] == ["acme_text-1"]
    assert "left out #2: wasn't tried yet: --run" in done.stdout
    assert "tasks: 1 written, 1 left out; next: doit validate" in done.stdout


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "wasn't tried yet: --run"),
        ({"trial": trial()}, "has no statement yet: --statements"),
        (
            {"trial": trial(outcome="no-signal", reason="3 p2p", expected=None)},
            "no test tells the fix from its absence: 3 p2p",
        ),
        (
            {"trial": trial(outcome="fails-after", reason="tests.test_2.test")},
            "a test of the change fails with the fix: tests.test_2.test",
        ),
        ({"trial": {"outcome": "valid"}}, "trial.json: key: is missing"),
        ({"trial": trial(environment="old")}, "it was tried in 'old', which kbench.toml has no"),
        (
            {"statement": statement(outcome="rejected", reason="names lib2")},
            "its statement is rejected: names lib2",
        ),
        ({"statement": statement(outcome="draft", reason="")}, "its statement is draft"),
        ({"statement": [1]}, "statement.json: the whole value must be an object"),
    ],
)
def test_whatever_is_left_out_keeps_its_reason(
    mined: Mined, files: dict[str, Any], reason: str
) -> None:
    mined.ready(1)
    mined.keep(2, **files)
    if "statement" in files:
        mined.keep(2, trial=trial())
    elif files:
        without_statement = files["trial"] == trial()
        mined.keep(2, **({} if without_statement else {"statement": statement()}))
    done = mined.run("--emit")
    assert f"left out #2: {reason}" in done.stdout
    assert mined.task(1).is_dir()
    assert not mined.task(2).exists()


def test_the_task_says_where_it_is_from(mined: Mined) -> None:
    mined.ready(1)
    urls = ["https://forge.example.org/acme/text/issues/9"]
    mined.keep(1, statement=statement(issues=urls))
    mined.run("--emit")
    config = mined.toml(1)
    base = mined.project.upstream.git("rev-parse", "HEAD~2")
    assert config["metadata"]["source"] == {
        "repository_owner": "acme",
        "repository_name": "text",
        "repository_url": "https://forge.example.org/acme/text",
        "license": "MIT",
        "code_change_type": "pull_request",
        "code_change_id": "1",
        "code_change_url": "https://forge.example.org/acme/text/pulls/1",
        "issue_urls": urls,
        "base_commit": base,
    }
    assert config["task"]["name"] == "mined/acme_text-1"
    assert config["task"]["description"] == "Mend it"


def test_the_repositorys_address_tells_those_of_its_changes(mined: Mined) -> None:
    mined.project.upstream.git("config", "remote.origin.url", "/srv/mirrors/text")
    mined.ready(1)
    given = 'code_change_url = "https://forge.example.org/acme/text/pulls/{number}"\n'
    mined.configure(CONFIG.replace(given, ""))
    assert "repository_url, code_change_url not known" in mined.run("--emit", *NAMED).stdout
    mined.configure(CONFIG.replace(given, f'repository_url = "{HOME}"\n'))
    mined.run("--emit", *NAMED)
    assert mined.toml(1)["metadata"]["source"]["code_change_url"] == f"{HOME}/pull/1"


def test_the_dataset_says_more_for_all_tasks_and_for_one(mined: Mined) -> None:
    mined.ready(1, 2)
    mined.run("--emit")
    assert [mined.toml(n)["agent"]["timeout_sec"] for n in (1, 2)] == [60, 60]
    assert [mined.toml(n)["metadata"].get("difficulty") for n in (1, 2)] == ["easy", None]


def test_what_ran_is_what_is_expected_and_the_command_is_the_trials(mined: Mined) -> None:
    mined.ready(1)
    mined.run("--emit")
    tests = mined.task(1) / "tests"
    found = json.loads((tests / "expected_tests.json").read_bytes())
    assert list(found) == [
        "f2p_tests",
        "p2p_tests",
        "s2p_tests",
        "n2p_tests",
        "run_result",
        "test_patch_result",
    ]
    assert found["f2p_tests"] == EXPECTED["f2p_tests"]
    verify = json.loads((tests / "verify.json").read_bytes())
    assert verify["command"] == ["python3", "-m", "pytest", "tests/test_1.py"]
    assert list(verify["hidden"]) == ["tests/test_1.py"]
    assert list(verify["protected"]["files"]) == ["tests/test_old.py"]


def test_the_image_holds_what_the_base_reaches_and_its_build_the_variables(mined: Mined) -> None:
    mined.ready(1)
    mined.run("--emit")
    base = mined.project.upstream.git("rev-parse", "HEAD~2")
    recipe = (mined.task(1) / "environment" / "Dockerfile").read_text(encoding="utf-8")
    seal = f"RUN bash /opt/kbench/seal_git_history.sh /home/text {base} ancestors\n"
    assert recipe.startswith("FROM mined/acme_text:history AS sealed\n")
    assert seal in recipe
    assert "FROM python:1\nCOPY --from=sealed /home/text /work\n" in recipe
    prepare = (mined.task(1) / "environment" / "prepare.sh").read_text(encoding="utf-8")
    assert "export PYTHONPATH='src dir'\nmake built\n" in prepare


def test_no_history_past_the_newest_base_is_in_the_bundle(mined: Mined) -> None:
    mined.ready(1, 2)
    mined.run("--emit")
    bundle = mined.root / ".kbench" / "inputs" / "acme_text" / "history.bundle"
    git = mined.project.upstream.git
    heads = git("bundle", "list-heads", str(bundle))
    assert heads == f"{git('rev-parse', 'HEAD~1')} refs/heads/main"
    inputs = tomllib.loads(
        (mined.root / "bases" / "acme_text" / "inputs.toml").read_text(encoding="utf-8")
    )
    assert inputs["input"][0]["git_heads"] == heads_digest(heads)


def test_the_base_moves_on_to_a_newer_commit_and_never_back(mined: Mined) -> None:
    mined.ready(1)
    mined.run("--emit")
    inputs = mined.root / "bases" / "acme_text" / "inputs.toml"
    older = inputs.read_text(encoding="utf-8")
    mined.ready(2)
    mined.run("--emit")
    newer = inputs.read_text(encoding="utf-8")
    assert mined.project.upstream.git("rev-parse", "HEAD~1") in newer
    assert newer != older
    shutil.rmtree(mined.task(1))
    assert "new      tasks/acme_text-1" in mined.run("--emit", "--only", "1").stdout
    assert inputs.read_text(encoding="utf-8") == newer
    manifest = (mined.root / "bases" / "manifest").read_text(encoding="utf-8")
    assert manifest.count("acme_text history Dockerfile.history") == 1


def test_a_base_that_a_person_changed_is_left_alone(mined: Mined) -> None:
    mined.ready(1)
    place = mined.root / "bases" / "acme_text" / "Dockerfile.history"
    place.parent.mkdir(parents=True)
    place.write_text("FROM mine\n", encoding="utf-8")
    done = mined.run("--emit")
    assert done.returncode == 2
    said = "error: bases/acme_text/Dockerfile.history: changed by hand; --force replaces it\n"
    assert done.stderr == said
    assert place.read_text(encoding="utf-8") == "FROM mine\n"
    assert not mined.task(1).exists()
    assert mined.run("--emit", "--force").returncode == 0
    assert "mine\n" not in place.read_text(encoding="utf-8")


def test_a_second_run_writes_nothing(mined: Mined) -> None:
    mined.ready(1)
    mined.run("--emit")
    before = mined.times()
    done = mined.run("--emit")
    assert "same     tasks/acme_text-1" in done.stdout
    assert mined.times() == before


def test_a_task_that_differs_stays_and_what_differs_is_said(mined: Mined) -> None:
    mined.ready(1)
    mined.run("--emit")
    (mined.task(1) / "instruction.md").write_text("# By hand\n", encoding="utf-8")
    (mined.task(1) / "tests" / "test.sh").unlink()
    (mined.task(1) / "tests" / "quarantine.json").write_text("{}", encoding="utf-8")
    done = mined.run("--emit")
    assert done.returncode == 1
    line = "differs  tasks/acme_text-1: instruction.md, tests/test.sh: stays as it is"
    assert line in done.stdout
    assert "not ours, left alone: tests/quarantine.json" in done.stdout
    assert (mined.task(1) / "instruction.md").read_text(encoding="utf-8") == "# By hand\n"
    forced = mined.run("--emit", "--force")
    assert forced.returncode == 0
    assert (mined.task(1) / "instruction.md").read_text(encoding="utf-8") == "# Wrong\n"
    assert (mined.task(1) / "tests" / "quarantine.json").exists()


def test_a_dry_run_writes_nothing_and_says_the_same(mined: Mined) -> None:
    mined.ready(1)
    done = mined.run("--emit", "--dry-run")
    assert done.returncode == 0
    assert "new      tasks/acme_text-1" in done.stdout
    assert "tasks: 1 to write, 1 left out" in done.stdout
    assert sorted(p.name for p in mined.root.iterdir()) == [".kbench", "kbench.toml", "mined"]
    assert [p.name for p in (mined.root / ".kbench").iterdir()] == ["acme_text.lock"]


def test_what_stands_in_a_tasks_place_is_never_followed(mined: Mined, tmp_path: Path) -> None:
    mined.ready(1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (mined.root / "tasks").mkdir()
    mined.task(1).symlink_to(elsewhere)
    done = mined.run("--emit", "--force")
    assert "left out #1: tasks/acme_text-1 is there already and is no folder" in done.stdout
    assert not list(elsewhere.iterdir())


def test_json_says_the_same(mined: Mined) -> None:
    mined.ready(1)
    value = json.loads(mined.run("--emit", "--format", "json").stdout)["emitted"]
    states = [(task["change"], task["task"], task["state"]) for task in value["tasks"]]
    assert states == [("#2", "acme_text-2", "left-out"), ("#1", "acme_text-1", "new")]
    assert "bases/manifest" in value["bases"]


def test_a_licence_that_is_not_known_is_said_and_never_guessed(tmp_path: Path) -> None:
    mined = Mined(tmp_path)
    mined.ready(1)
    mined.project.upstream.git("rm", "-q", "LICENSE")
    mined.project.upstream.git("commit", "-q", "-m", "Away")
    mined.project.pull({"src/lib3.py": "a = 1\n" * 4, "tests/test_3.py": "def test():\n    1\n"})
    mined.run()
    mined.ready(3)
    done = mined.run("--emit")
    reason = "no licence file in the root, and nothing declares one"
    place = "say it in [mine.emit.metadata.source] of kbench.toml"
    assert f"left out #3: license not known ({reason}): {place}" in done.stdout
    place = "[mine.emit.metadata.source]\n"
    mined.configure(CONFIG.replace(place, f'{place}license = "0BSD"\n'))
    mined.run("--emit", "--force")
    assert mined.toml(3)["metadata"]["source"]["license"] == "0BSD"


def test_known_texts_and_declarations_give_the_licence() -> None:
    texts = {name: (LICENCES / name).read_bytes() for name in ("MIT", "Apache-2.0")}
    assert recognised(texts) == {"MIT": "MIT", "Apache-2.0": "Apache-2.0"}
    assert recognised({"a": b"", "b": b"\xff\xfe", "c": b"All rights reserved.\n"}) == {
        "a": "",
        "b": "",
        "c": "",
    }
    assert licence_of({"LICENSE": "MIT"}, {}).spdx == "MIT"
    crate = {"Cargo.toml": b'[package]\nlicense = "MIT OR Apache-2.0"\n'}
    both = {"LICENSE-MIT": "MIT", "LICENSE-APACHE": "Apache-2.0"}
    assert licence_of(both, crate).spdx == "MIT OR Apache-2.0"
    package = {"package.json": b'{"license": "isc"}'}
    assert licence_of({}, package).spdx == "ISC"
    gnu = {"pyproject.toml": b'[project]\nlicense = "GPL-3.0-or-later"\n'}
    assert licence_of({"COPYING": "GPL-3.0"}, gnu).spdx == "GPL-3.0-or-later"


@pytest.mark.parametrize(
    ("known", "declaring", "reason"),
    [
        ({}, {}, "no licence file"),
        ({"LICENSE": ""}, {}, "LICENSE: not the text of a licence"),
        ({"LICENSE-MIT": "MIT", "LICENSE-APACHE": "Apache-2.0"}, {}, "texts of several"),
        ({"COPYING": "GPL-3.0"}, {}, "doesn't tell -only from -or-later"),
        (
            {"LICENSE": "MIT"},
            {"package.json": b'{"license": "Apache-2.0"}'},
            "package.json says Apache-2.0, the text is that of MIT",
        ),
        (
            {},
            {
                "package.json": b'{"license": "MIT"}',
                "pyproject.toml": b'[project]\nlicense = "ISC"\n',
            },
            "package.json says MIT, pyproject.toml says ISC",
        ),
        ({}, {"package.json": b"{" * 100_000}, "no licence file"),
        ({}, {"package.json": b'{"license": "SEE LICENSE IN x"}'}, "no licence file"),
    ],
)
def test_a_licence_in_doubt_is_not_known(
    known: dict[str, str], declaring: dict[str, bytes], reason: str
) -> None:
    found = licence_of(known, declaring)
    assert found.spdx == ""
    assert reason in found.reason


def test_only_files_of_the_root_may_say_the_licence() -> None:
    names = [
        "LICENSE",
        "license.md",
        "LICENCE-MIT",
        "COPYING",
        "licenses.py",
        "a/LICENSE",
        "x.toml",
    ]
    assert set(wanted(names)) == {"LICENSE", "license.md", "LICENCE-MIT", "COPYING"}


@pytest.mark.parametrize(
    ("origin", "home"),
    [
        ("https://github.com/acme/text.git", "https://github.com/acme/text"),
        ("https://user:secret@github.com/acme/text", "https://github.com/acme/text"),
        ("git@github.com:acme/text.git", "https://github.com/acme/text"),
        ("ssh://git@forge.example.org:2222/acme/text.git", "https://forge.example.org/acme/text"),
        ("/srv/git/acme/text.git", ""),
        ("../acme/text", ""),
        ("file:///srv/acme/text", ""),
        ("https://[::1/acme/text", ""),
        ("", ""),
    ],
)
def test_a_repositorys_address_is_its_origins_without_secrets(origin: str, home: str) -> None:
    assert home_of(origin) == home


def test_addresses_are_made_only_where_their_shape_is_known() -> None:
    github = "https://github.com/acme/text"
    assert change_url(github, 7) == f"{github}/pull/7"
    assert issue_url("https://gitlab.com/a/b", 7) == "https://gitlab.com/a/b/-/issues/7"
    assert commit_url(github, "abc") == f"{github}/commit/abc"
    own = "https://forge.example.org/acme/text"
    assert (change_url(own, 7), issue_url(own, 7)) == ("", "")
    assert issue_url(own, 9, f"{own}/pulls/7") == f"{own}/issues/9"
    assert home_of("", f"{own}/pulls/7") == own


def test_long_lists_stand_a_line_each_and_plain_keys_before_tables() -> None:
    text = toml_text({"t": {"s": {}, "a": ["x" * 40] * 3}, "k": 'q"'})
    assert tomllib.loads(text) == {"k": 'q"', "t": {"a": ["x" * 40] * 3, "s": {}}}
    assert text.startswith("k = ")
    assert f'a = [\n  "{"x" * 40}",\n' in text
    assert laid_over({"a": {"b": 1, "c": 2}}, {"a": {"b": [3]}}) == {"a": {"b": [3], "c": 2}}


def test_ids_with_half_a_character_can_be_written() -> None:
    value = {**EXPECTED, "f2p_tests": ["a\ud800"]}
    assert json.loads(expected_tests(value))["f2p_tests"] == ["a\ud800"]


def test_a_hostile_title_and_name_make_plain_files(mined: Mined) -> None:
    files: dict[str, str | bytes | None] = {
        "src/lib4.py": "a = 1\n" * 4,
        "tests/test_4.py": "def test():\n    1\n",
    }
    mined.project.change(files, 'M\udce9nd \x1b[31m"""\\ ' + "x" * 5_000 + " (#4)")
    mined.run("--repository", "acme/te xt$(id)")
    place = mined.root / "mined" / "acme_te xt$(id)" / "4"
    for name, value in (("trial", trial()), ("statement", statement(text="a\ud800"))):
        (place / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    done = mined.run("--repository", "acme/te xt$(id)", "--emit", "--only", "4")
    assert "1 written" in done.stdout, done.stdout
    (task,) = (mined.root / "tasks").iterdir()
    assert task.name == "acme_te-xt-id--4"
    title = tomllib.loads((task / "task.toml").read_text(encoding="utf-8"))["task"]["description"]
    assert title.startswith('M\xe9nd [31m"""\\ xx')
    assert len(title) < 400
    recipe = (task / "environment" / "Dockerfile").read_text(encoding="utf-8")
    assert "/home/te-xt-id-" in recipe
    assert "$" not in recipe


def test_task_ids_are_owner_name_and_number() -> None:
    assert task_id("acme/text", "#7") == "acme_text-7"
    assert task_id("acme/te.xt", "0123456789ab") == "acme_te.xt-0123456789ab"


def test_the_bases_script_fetches_what_the_pin_says(tmp_path: Path) -> None:
    project = trial_kit.Project(tmp_path)
    git = project.upstream.git
    old = git("rev-parse", "HEAD")
    project.pull({"src/a.py": "a = 1\n", "tests/test_a.py": "b = 1\n"})
    script = Path(runtime.__file__).parent / clone_base.SCRIPT
    output = tmp_path / "made.bundle"
    command = ["bash", str(script), str(project.upstream.root), old]
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin", "KBENCH_OUTPUT": str(output)})
    assert git("bundle", "list-heads", str(output)) == f"{old} refs/heads/main"
    for address in ("ext::sh -c id", str(tmp_path / "nowhere")):
        away = [*command[:2], address, old]
        environment = {"PATH": "/usr/bin:/bin", "KBENCH_OUTPUT": str(tmp_path / "none")}
        failed = subprocess.run(away, capture_output=True, env=environment, check=False)
        assert failed.returncode != 0
    assert not (tmp_path / "none").exists()
    wrong = subprocess.run([*command[:3], "main"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "not a full commit id: 'main'" in wrong.stderr


def test_the_base_of_a_shared_folder_is_recognised() -> None:
    assert clone_base.repo_name("Acme.Inc/Te_xt") == "acme-inc_te-xt"
    files = clone_base.base_files(
        "acme/text", image="i:1", address="https://a.example/acme/text", commit="c" * 40, script=b""
    )
    inputs = files["inputs.toml"].decode()
    assert clone_base.pinned_commit(inputs, "acme_text") == "c" * 40
    assert clone_base.pinned_commit("[[input]]\n", "acme_text") == ""
    assert clone_base.with_line("a b c", "x") == "a b c\nx history Dockerfile.history\n"


def test_a_shallow_clone_says_that_its_history_is_not_all_there(mined: Mined) -> None:
    shallow = mined.root.parent / "shallow"
    url = f"file://{mined.clone}"
    command = ["git", "clone", "-q", "--depth", "3", url, str(shallow)]
    subprocess.run(command, check=True)
    address = "https://forge.example.org/acme/text"
    subprocess.run(["git", "-C", shallow, "remote", "set-url", "origin", address], check=True)
    mined.run(clone=str(shallow))
    mined.ready(1, 2)
    done = mined.run("--emit", clone=str(shallow))
    assert done.returncode == 2
    assert "isn't all there" in done.stderr
    assert not mined.task(2).exists()


def test_an_environment_of_another_upstream_serves_none_of_this_one(mined: Mined) -> None:
    mined.ready(1)
    mined.configure(CONFIG.replace('name = "py"', 'name = "py"\nrepository = "acme/other"'))
    assert "it was tried in 'py', which kbench.toml has no more" in mined.run("--emit").stdout
    mined.configure(CONFIG.replace('name = "py"', 'name = "py"\nrepository = "Acme/text"'))
    assert "new      tasks/acme_text-1" in mined.run("--emit").stdout


def test_settings_that_make_no_sense_name_their_place(mined: Mined) -> None:
    for text, said in (
        ("[mine.emit]\nfoo = 1\n", "mine.emit.foo: is no table of task.toml"),
        ('[[mine.change]]\nchange = "acme"\n', "mine.change[0].change: must name a change"),
        ('[mine.emit]\nagent = "x"\n', "mine.emit.agent: must be a table"),
    ):
        mined.configure(text)
        done = mined.run("--emit")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
