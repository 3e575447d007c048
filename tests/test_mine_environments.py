"""`[[mine.environment]]`: what it says, and what is wrong with it, by its path."""

import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kbench_build.errors import KbenchError
from kbench_build.rim.mine_config import load_mine_config
from kbench_build.rim.presets import preset_names, runnable
from kbench_build.rules.trial_commands import given_files

SCHEMA = Path(__file__).parent.parent / "schemas" / "kbench.schema.json"
NEEDED = 'name = "a"\nimage = "b:c"\ncommand = ["t", "{files}"]\nreports = ["r.xml"]\n'
WHOLE = (
    f'{NEEDED}start = "v1"\nend = "2024-01-01"\nworkdir = "/home/up"\nprepare = ["x"]\n'
    'network = true\nprotected = ["p/**"]\nfiles = ["*.t"]\nenvironment = { A = "b" }\n'
    "timeout_sec = 60\ncpus = 1.5\nmemory_mb = 512\ndisk_mb = 1024\n"
)


def load(root: Path, *tables: str, preset: str = "") -> object:
    text = "".join(f"[[mine.environment]]\n{table}" for table in tables)
    (root / "kbench.toml").write_text(text, encoding="utf-8")
    return load_mine_config(root, preset).environments


def is_fine(table: str) -> bool:
    document = tomllib.loads(f"[[mine.environment]]\n{table}")
    return Draft202012Validator(json.loads(SCHEMA.read_bytes())).is_valid(document)


def test_a_short_one_has_defaults(tmp_path: Path) -> None:
    load(tmp_path, NEEDED)
    (found,) = load_mine_config(tmp_path, "python-pytest").environments
    assert (found.workdir, found.timeout_sec, found.network) == ("/work", 1800, False)
    assert found.files == runnable("python-pytest")
    assert is_fine(NEEDED)


def test_a_whole_one_is_read_as_it_is(tmp_path: Path) -> None:
    load(tmp_path, WHOLE)
    (found,) = load_mine_config(tmp_path).environments
    assert (found.start, found.end, found.workdir) == ("v1", "2024-01-01", "/home/up")
    assert (found.prepare, found.network, found.files) == (("x",), True, ("*.t",))
    assert (found.cpus, found.memory_mb, found.disk_mb) == (1.5, 512, 1024)
    assert (found.protected, found.environment) == (("p/**",), {"A": "b"})
    assert is_fine(WHOLE)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", r"mine.environment\[0\].name: is missing"),
        (NEEDED.replace('"b:c"', "7"), r"environment\[0\].image: must be a string, not 7"),
        (NEEDED.replace('["r.xml"]', '"r.xml"'), r"\[0\].reports: must be a list of strings"),
        (NEEDED.replace('["r.xml"]', "[]"), r"\[0\].reports: is missing"),
        (f"{NEEDED}immage = 1", r"\[0\].immage: is no key here; known are .*\bimage\b"),
        (f'{NEEDED}workdir = "up"', r"\[0\].workdir: must be the absolute path of a folder"),
        (f'{NEEDED}network = "no"', r"\[0\].network: must be true or false"),
        (f"{NEEDED}timeout_sec = 0", r"\[0\].timeout_sec: must be a number above 0, not 0"),
        (f"{NEEDED}memory_mb = 1.5", r"\[0\].memory_mb: must be a whole number from 1 up"),
        (f"{NEEDED}environment = {{ A = 1 }}", r"\[0\].environment: must be a table of strings"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(KbenchError, match=said):
        load(tmp_path, table)
    assert not is_fine(table)


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KbenchError, match=r"environment\[1\].name: 'a' stands there already"):
        load(tmp_path, NEEDED, NEEDED)


def test_no_table_is_no_environment(tmp_path: Path) -> None:
    (tmp_path / "kbench.toml").write_text("[mine]\nenvironment = 1\n", encoding="utf-8")
    with pytest.raises(KbenchError, match="must be written as"):
        load_mine_config(tmp_path)


def test_every_preset_tells_tests_from_what_they_read() -> None:
    files = {
        "go": ["a/b_test.go"],
        "java-maven": ["m/src/test/java/ATest.java"],
        "kotlin-gradle": ["m/src/test/kotlin/ATest.kt"],
        "python-pytest": ["tests/test_a.py", "a/b_test.py"],
        "rust": ["tests/a.rs"],
        "typescript": ["src/a.test.ts", "test/a.js", "src/__tests__/a.tsx", "a.spec.mjs"],
    }
    data = ["tests/data/a.json", "src/test/resources/a.txt", "__snapshots__/a.test.ts.snap"]
    assert set(files) == set(preset_names())
    for name, found in files.items():
        assert list(given_files([*found, *data], runnable(name))) == found
