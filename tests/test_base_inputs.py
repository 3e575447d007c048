"""Generated context files: made by their command, held against their pin, whole or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest
from blake3 import blake3

from kbench_build.errors import KbenchError
from kbench_build.rim.tree import scan_tree
from kbench_build.rules.base_inputs import (
    BaseInput,
    heads_digest,
    identity,
    made_from,
    parse_inputs,
)
from kbench_build.steps.base_inputs import make_input, place

GOOD = """
[[input]]
file = "rootfs.tar"
command = ["sh", "make.sh"]
sources = ["make.sh", "data/**"]
bases = ["low"]
unpinned = "it moves"
[[input]]
file = "history.bundle"
command = ["sh", "make.sh"]
git_heads = "%s"
""" % ("0" * 64)


def test_inputs_are_read() -> None:
    inputs, findings = parse_inputs(GOOD, "r")
    assert findings == ()
    assert [(i.name, i.pin_kind, i.serves("low"), i.serves("high")) for i in inputs] == [
        ("r/rootfs.tar", "unpinned", True, False),
        ("r/history.bundle", "git_heads", True, True),
    ]
    assert identity(inputs[0], "made") == "made"
    assert identity(inputs[1], "made") == "0" * 64


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("[[input]\n", "", "line 1, column"),
        ("inputs = 1\n", "", "must hold [[input]] tables"),
        ('[[input]]\nfile="a"\ncommand=["x"]\n', "input[0]", "exactly one of"),
        ('[[input]]\nfile="a"\ncommand=["x"]\nunpinned="r"\nblake3="0"', "input[0]", "exactly one"),
        ('[[input]]\nfile="a"\ncommand=["x"]\nblake3="AB"', "input[0].blake3", "64 lower-case"),
        ('[[input]]\nfile="a"\ncommand=["x"]\nunpinned=" "', "input[0].unpinned", "isn't empty"),
        ('[[input]]\nfile="../a"\ncommand=["x"]\nunpinned="r"', "input[0].file", "outside"),
        ('[[input]]\ncommand=["x"]\nunpinned="r"', "input[0].file", "must name a file"),
        ('[[input]]\nfile="a"\nunpinned="r"', "input[0].command", "is missing"),
        ('[[input]]\nfile="a"\ncommand="x"\nunpinned="r"', "input[0].command", "list of strings"),
        ('[[input]]\nfile="a"\ncommand=["x"]\nunpined="r"', "input[0].unpined", "is no key here"),
        (GOOD + GOOD.replace("low", "x"), "input[2].file", "by an earlier input already"),
    ],
)
def test_what_is_wrong_with_inputs_is_named(text: str, where: str, said: str) -> None:
    _, findings = parse_inputs(text, "r")
    match = [f for f in findings if f.where == where and said in f.message]
    assert match, findings
    assert match[0].file == "bases/r/inputs.toml"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "bases/r/data").mkdir(parents=True)
    (tmp_path / "bases/r/data/x").write_text("x")
    (tmp_path / "bases/r/make.sh").write_text('cat data/x >"$KBENCH_OUTPUT"; echo run >>../runs\n')
    return tmp_path


def _input(**changes: object) -> BaseInput:
    values: dict[str, object] = {
        "repo": "r",
        "file": "sub/out",
        "command": ("sh", "make.sh"),
        "sources": ("make.sh", "data/**"),
        "pin_kind": "blake3",
        "pin": blake3(b"x").hexdigest(),
        **changes,
    }
    return BaseInput(**values)  # type: ignore[arg-type]


def _runs(root: Path) -> int:
    runs = root / "bases/runs"
    return len(runs.read_text().splitlines()) if runs.exists() else 0


def test_a_file_is_made_and_checked(root: Path) -> None:
    report = make_input(root, _input(), inputs="i")
    assert (report.ok, report.step, report.subject, report.inputs) == (
        True,
        "base_inputs",
        "r/sub/out",
        "i",
    )
    assert report.data == {"digest": blake3(b"x").hexdigest(), "size": 1, "pin": "blake3"}
    assert place(root, _input()).read_bytes() == b"x"
    assert not (root / "bases/r/out").exists()
    assert make_input(root, _input(), inputs="i").ok
    assert _runs(root) == 1


def test_a_file_other_than_its_pin_is_refused_and_not_kept(root: Path) -> None:
    report = make_input(root, _input(pin="1" * 64), inputs="i")
    assert not report.ok
    assert "1" * 64 in report.summary
    assert blake3(b"x").hexdigest() in report.summary
    assert report.summary.startswith("bases/r/inputs.toml: sub/out: ")
    assert not place(root, _input()).exists()


def test_a_damaged_file_is_made_again(root: Path) -> None:
    make_input(root, _input(), inputs="i")
    place(root, _input()).write_text("damaged")
    assert make_input(root, _input(), inputs="i").ok
    assert place(root, _input()).read_bytes() == b"x"


def test_an_unpinned_file_counts_by_its_content_and_is_made_each_time(root: Path) -> None:
    item = _input(pin_kind="unpinned", pin="it moves")
    assert make_input(root, item, inputs="i").data["digest"] == blake3(b"x").hexdigest()
    (root / "bases/r/data/x").write_text("y")
    assert make_input(root, item, inputs="i").data["digest"] == blake3(b"y").hexdigest()


def test_a_bundle_is_held_against_its_heads(root: Path) -> None:
    (root / "bases/r/make.sh").write_text(
        "set -e\nd=$(mktemp -d)\ngit init -q -b main $d\n"
        "git -C $d -c user.name=n -c user.email=e commit -q --allow-empty -m one\n"
        'git -C $d bundle create -q "$KBENCH_OUTPUT" main\ngit -C $d rev-parse main >../id\n'
        "rm -rf $d\n"
    )
    item = _input(pin_kind="git_heads", pin="2" * 64)
    refused = make_input(root, item, inputs="i")
    commit = (root / "bases/id").read_text().strip()
    assert not refused.ok
    assert refused.data["digest"] == heads_digest(f"{commit} refs/heads/main\n")


def test_heads_are_compared_in_any_order() -> None:
    assert (
        heads_digest("b r2\na r1\n")
        == heads_digest("a r1\nb r2")
        == blake3(b"a r1\nb r2\n").hexdigest()
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "ended with exit code 3"),
        ("true", "left no file at $KBENCH_OUTPUT"),
        ('printf half >"$KBENCH_OUTPUT"; echo broken >&2; exit 1', "broken"),
    ],
)
def test_a_command_that_fails_leaves_nothing(root: Path, script: str, said: str) -> None:
    (root / "bases/r/make.sh").write_text(script)
    with pytest.raises(KbenchError) as caught:
        make_input(root, _input(), inputs="i")
    assert said in str(caught.value)
    assert [p for p in (root / ".kbench/inputs").rglob("*") if p.is_file()] == []


def test_a_missing_tool_is_one_line(root: Path) -> None:
    with pytest.raises(KbenchError) as caught:
        make_input(root, _input(command=("no-such-tool-here",)), inputs="i")
    assert "no-such-tool-here" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_file_is_made_from_counts_and_nothing_else(root: Path) -> None:
    folder = root / "bases/r"
    before = made_from(_input(), scan_tree(folder))
    (folder / "README").write_text("no source")
    assert made_from(_input(), scan_tree(folder)) == before
    (folder / "data/y").write_text("a new source")
    assert made_from(_input(), scan_tree(folder)) != before
    assert made_from(_input(command=("sh", "make.sh", "-x")), scan_tree(folder)) != before


def test_an_interrupted_command_leaves_nothing(root: Path) -> None:
    (root / "bases/r/make.sh").write_text('printf half >"$KBENCH_OUTPUT"; kill -INT $PPID; sleep 9')
    code = (
        "import sys; from pathlib import Path\n"
        "from kbench_build.rules.base_inputs import BaseInput\n"
        "from kbench_build.steps.base_inputs import make_input\n"
        "item = BaseInput(repo='r', file='f', command=('sh', 'make.sh'), sources=(), "
        "pin_kind='unpinned', pin='x')\n"
        "make_input(Path(sys.argv[1]), item, inputs='i')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, check=False)
    assert done.returncode != 0
    assert b"KeyboardInterrupt" in done.stderr
    assert [p for p in (root / ".kbench/inputs").rglob("*") if p.is_file()] == []
