"""kbench.toml: defaults for every key, and errors that name the key."""

from pathlib import Path

import pytest

from kbench_build.errors import KbenchError
from kbench_build.model import Suppression
from kbench_build.rim.config import load_config
from kbench_build.rim.dataset import open_dataset, read_task_toml
from kbench_build.rules.manifest import parse_manifest


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    config = load_config(tmp_path)
    assert config.name == tmp_path.name.lower()
    assert config.require == ("validate", "seal", "selfcheck")
    assert (config.runs, config.engine, config.namespace) == (1, "docker", "kotlin-bench")


def test_every_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "kbench.toml").write_text(
        '[dataset]\nname = "n"\nversion = "2.0.0"\nnamespace = "ns"\ndescription = "d"\n'
        '[engine]\nkind = "docker"\n[release]\nrequire = ["seal", "validate"]\n'
        "[selfcheck]\nruns = 3\n"
        '[[suppress]]\nrule = "a/b"\ntask = "t"\nreason = "because"\n'
    )
    config = load_config(tmp_path)
    assert (config.name, config.version, config.namespace) == ("n", "2.0.0", "ns")
    assert config.require == ("validate", "seal")
    assert config.runs == 3
    assert config.suppress == (Suppression(rule="a/b", task="t", reason="because"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[dataset\n", "line 1, column 9"),
        ("[datset]\n", "datset: is no key here"),
        ("[dataset]\nnam = 1\n", "dataset.nam: is no key here"),
        ("[dataset]\nname = 1\n", "dataset.name: must be a string, not 1"),
        ("dataset = 1\n", "dataset: must be a table"),
        ("[release]\nrequire = ['seal', 'sale']\n", r"release.require\[1\]: 'sale' isn't one of"),
        ("[release]\nrequire = 'seal'\n", "release.require: must be a list"),
        ("[selfcheck]\nruns = 0\n", "selfcheck.runs: must be a whole number from 1 up"),
        ("[selfcheck]\nruns = true\n", "selfcheck.runs"),
        ("[[suppress]]\nrule = 'a'\n", r"suppress\[0\].reason: is missing"),
        ("[[suppress]]\nreason = 'a'\n", r"suppress\[0\].rule: is missing"),
        ("suppress = [1]\n", r"suppress\[0\]: must be a table"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "kbench.toml").write_text(text)
    with pytest.raises(KbenchError, match=f"kbench.toml: .*{said}"):
        load_config(tmp_path)


def test_text_that_isnt_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "kbench.toml").write_bytes(b"\xff")
    with pytest.raises(KbenchError, match=r"kbench\.toml: byte 0 isn't UTF-8"):
        load_config(tmp_path)


def test_a_folder_without_tasks_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(KbenchError, match="no folder tasks/ here"):
        open_dataset(tmp_path)


def test_tasks_are_listed_by_name(tmp_path: Path) -> None:
    for name in ("b", "a", "__pycache__"):
        (tmp_path / "tasks" / name).mkdir(parents=True)
    (tmp_path / "tasks" / "README.md").write_text("")
    assert open_dataset(tmp_path).tasks == ("a", "b")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = [\n", "line 2, column 1: Invalid value"),
        (b"a = 1\nb\n", "line 2, column 2: "),
        (b"\xff\xfe", "byte 0 isn't UTF-8"),
        (None, "is missing"),
    ],
)
def test_a_bad_task_toml_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    (tmp_path / "tasks" / "t").mkdir(parents=True)
    if content is not None:
        (tmp_path / "tasks" / "t" / "task.toml").write_bytes(content)
    with pytest.raises(KbenchError, match=f"tasks/t/task.toml: .*{said}"):
        read_task_toml(tmp_path, "t")


def test_a_manifest_is_read_line_by_line() -> None:
    bases, findings = parse_manifest("# c\n\nkotlin 2.4 Dockerfile.2.4 # jdk 17\nweb a.b sub/D\n")
    assert [(b.name, b.dockerfile, b.context, b.line) for b in bases] == [
        ("kotlin:2.4", "bases/kotlin/Dockerfile.2.4", "bases/kotlin", 3),
        ("web:a.b", "bases/web/sub/D", "bases/web", 4),
    ]
    assert findings == ()


def test_the_last_line_counts_without_a_newline_and_is_warned_of() -> None:
    bases, findings = parse_manifest("kotlin 2.4 D\nweb 1 D")
    assert len(bases) == 2
    assert [(f.severity, f.where) for f in findings] == [("warning", "line 2")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kotlin 2.4", "2 fields where there must be 3"),
        ("kotlin 2.4 D E", "4 fields where there must be 3"),
        ("Kotlin 2.4 D", "can't be the name of a base's repository"),
        ("task 2.4 D", "can't be the name of a base's repository"),
        ("kotlin 2:4 D", "can't be an image tag"),
        ("kotlin 2.4 ../D", "lies outside bases/kotlin/"),
        ("kotlin 2.4 /D", "lies outside bases/kotlin/"),
        ("good 1 E", "good:1 stands in line 1 already"),
    ],
)
def test_a_wrong_line_is_named_and_the_others_are_read(line: str, said: str) -> None:
    bases, findings = parse_manifest(f"good 1 D\n{line}\nalso 1 D\n")
    assert [b.name for b in bases] == ["good:1", "also:1"]
    assert [(f.file, f.where, f.severity) for f in findings] == [
        ("bases/manifest", "line 2", "error")
    ]
    assert said in findings[0].message
