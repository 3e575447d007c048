"""`kbench init`: two files make a folder of tasks a dataset, and nothing else is touched."""

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbench_build.cli import cli
from kbench_build.errors import KbenchError
from kbench_build.model import Base
from kbench_build.rim.config import load_config
from kbench_build.rules.starter import Adopted, dataset_name, namespace_of, starter
from tests import foreign_kit
from tests.graph_kit import ROOT, counts, doit, lines, make_dataset, write


def run(*words: str | Path) -> Result:
    done = CliRunner().invoke(cli, ["init", *map(str, words)])
    if not isinstance(done.exception, SystemExit | None):
        raise done.exception
    return done


def block(language: str) -> str:
    """The first code block of a language in the page about adoption."""
    page = (ROOT / "docs" / "adopt.md").read_text(encoding="utf-8")
    return page.split(f"```{language}\n", 1)[1].split("```", 1)[0]


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Only bases/ and tasks/, in the older shape."""
    return foreign_kit.make(tmp_path, namespace="acme-bench").root


def test_it_writes_two_files_and_touches_nothing_else(foreign: Path) -> None:
    before = contents(foreign)
    done = run(foreign)
    after = contents(foreign)
    assert done.exit_code == 0
    assert set(after) - set(before) == {"dodo.py", "kbench.toml"}
    assert {name: after[name] for name in before} == before
    assert after["dodo.py"] == (ROOT / "dodo.py").read_bytes()
    assert ".gitignore" in done.stdout


def test_the_page_shows_both_files_as_they_are_written(tmp_path: Path) -> None:
    root = foreign_kit.make(tmp_path).root.rename(tmp_path / "the-dataset")
    run(root)
    assert block("python") == (root / "dodo.py").read_text()
    assert block("toml") == (root / "kbench.toml").read_text()


def test_afterwards_plain_doit_works(foreign: Path) -> None:
    run(foreign)
    assert "validate" in doit(foreign, "list").stdout
    done = doit(foreign, "validate", code=None)
    assert done.returncode in (0, 1)
    assert lines(done.stdout, "validate") == ["@dataset", *foreign_kit.TASKS]
    again = doit(foreign, "validate", code=done.returncode)
    assert sum(counts(again.stdout).values()) == 1 + len(foreign_kit.TASKS)


def test_the_settings_fit_what_is_there(foreign: Path) -> None:
    run(foreign)
    text = (foreign / "kbench.toml").read_text()
    config = load_config(foreign)
    assert len(text.splitlines()) <= 12
    assert "#" in text
    assert config.name == "dataset"
    assert config.namespace == "acme-bench"
    # No task there names its base commit, so no image can be proven sealed.
    assert config.require == ("validate", "selfcheck")
    assert "2 of 2 tasks" in text


def test_tasks_that_name_their_base_commit_can_be_sealed(tmp_path: Path) -> None:
    for task in foreign_kit.make(tmp_path).root.glob("tasks/*/task.toml"):
        old = "[metadata.source]\n"
        task.write_text(task.read_text().replace(old, f'{old}base_commit = "{"a" * 40}"\n'))
    run(tmp_path / "dataset")
    assert load_config(tmp_path / "dataset").require == ("validate", "seal", "selfcheck")


def test_a_second_run_has_nothing_to_do(foreign: Path) -> None:
    run(foreign)
    before = contents(foreign)
    done = run(foreign)
    assert (done.exit_code, contents(foreign)) == (0, before)
    assert done.stdout.startswith("nothing to do")


@pytest.mark.parametrize("name", ["dodo.py", "kbench.toml"])
def test_it_overwrites_nothing_and_names_the_file(foreign: Path, name: str) -> None:
    write(foreign / name, "# mine\n")
    before = contents(foreign)
    with pytest.raises(KbenchError, match=f"{name}: is there already") as error:
        run(foreign)
    assert "\n" not in str(error.value)
    assert contents(foreign) == before


def test_a_link_to_nowhere_isnt_overwritten_either(foreign: Path) -> None:
    (foreign / "dodo.py").symlink_to("nowhere")
    with pytest.raises(KbenchError, match=r"dodo\.py: is there already"):
        run(foreign)


def test_the_file_that_is_missing_is_written(foreign: Path) -> None:
    run(foreign)
    (foreign / "kbench.toml").unlink()
    assert "dodo.py" not in run(foreign).stdout.splitlines()[0]
    assert (foreign / "kbench.toml").is_file()


def test_a_dry_run_shows_and_writes_nothing(foreign: Path) -> None:
    before = contents(foreign)
    done = run(foreign, "--dry-run")
    assert contents(foreign) == before
    assert "would write" in done.stdout
    assert 'namespace = "acme-bench"' in done.stdout


def test_the_current_folder_is_meant_without_a_name(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(foreign)
    run()
    assert load_config(foreign).name == "dataset"


def test_a_folder_without_tasks_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(KbenchError, match="no folder tasks/ here"):
        run(tmp_path)
    assert contents(tmp_path) == {}


def test_tasks_that_cant_be_read_keep_nobody_from_starting(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "Set", tasks=2)
    (root / "dodo.py").unlink()
    (root / "kbench.toml").unlink()
    write(root / "tasks/acme__tool-1/task.toml", "= broken")
    (root / "tasks/acme__tool-2/environment/Dockerfile").write_bytes(b"\xff\x00FROM")
    run(root)
    assert load_config(root).name == "set"


def seen(**changes: object) -> Adopted:
    known = {"folder": "x", "bases": (), "froms": (), "tasks": 1, "with_image": 1}
    return Adopted(**{"with_base_commit": 0, **known, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("folder", "name"),
    [("My Data (2)", "my-data-2"), ("kotlin_bench", "kotlin-bench"), ("Ω", "dataset"), ("a", "a")],
)
def test_a_name_can_stand_in_names_of_files(folder: str, name: str) -> None:
    assert dataset_name(folder) == name


@pytest.mark.parametrize("image", ['a"b/adder:jdk17', "a\nb/adder:jdk17", "A'/adder:jdk17"])
def test_an_odd_image_breaks_no_settings(image: str) -> None:
    base = Base(repo="adder", tag="jdk17", dockerfile="bases/adder/D", line=1)
    text = starter(seen(bases=(base,), froms=[image], folder='"]\n'))["kbench.toml"]
    assert tomllib.loads(text)["dataset"] == {"name": "dataset", "version": "0.1.0"}


def test_the_namespace_is_the_one_that_most_tasks_use() -> None:
    base = Base(repo="adder", tag="jdk17", dockerfile="bases/adder/D", line=1)
    froms = ["one/adder:jdk17", "two/x/adder:jdk17", "two/x/adder:jdk17", "three/other:1"]
    assert namespace_of([base], froms) == "two/x"
    assert namespace_of([base], ["debian:12", "adder:jdk17"]) == "kotlin-bench"


def test_without_images_only_validation_is_required() -> None:
    document = tomllib.loads(starter(seen(with_image=0))["kbench.toml"])
    assert document["release"]["require"] == ["validate"]
