"""The schemas are schemas, the two validators agree, and messages name the spot."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest

from kbench_build.errors import KbenchError
from kbench_build.rim import schemas
from kbench_build.rim.config import load_config
from kbench_build.rules.base_inputs import parse_inputs
from kbench_build.rules.documents import unknown_keys
from tests.samples import TASK_TOML, expected, verify

ROOT = Path(__file__).parent.parent
NAMES = sorted(p.name.removesuffix(".schema.json") for p in (ROOT / "schemas").glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_a_schema_that_says_what_it_is_of(name: str) -> None:
    schema = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_bytes())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    assert schema["description"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema_rs.validator_for(schema)


def wrong_values() -> list[tuple[str, Any, str]]:
    """(schema, value, the spot that its message must name)."""
    toml: dict[str, Any] = {"environment": {}}
    return [
        ("task", {**toml, "environment": {"cpus": "2"}}, "environment.cpus"),
        (
            "task",
            {"metadata": {"source": {"repository_url": "x"}}},
            "metadata.source.repository_url",
        ),
        ("task", {"steps": [{"name": "a"}, {}]}, "steps[1]"),
        ("expected_tests", {**expected(), "f2p_tests": ["a", ""]}, "f2p_tests[1]"),
        ("expected_tests", {"f2p_tests": []}, ""),
        ("verify", {**verify(), "workdir": "home"}, "workdir"),
        ("verify", {**verify(), "hidden": {"../x": {"base": None, "after": None}}}, "hidden"),
        ("inputs", {"input": [{"file": "a", "command": ["x"]}]}, "input[0]"),
        ("inputs", {"input": [{"file": "/a", "command": ["x"], "unpinned": "y"}]}, "input[0].file"),
        ("kbench", {"selfcheck": {"runs": 0}}, "selfcheck.runs"),
        ("kbench", {"release": {"require": ["luck"]}}, "release.require[0]"),
    ]


@pytest.mark.parametrize(("name", "value", "spot"), wrong_values())
def test_what_doesnt_fit_is_named_by_its_path(name: str, value: Any, spot: str) -> None:
    assert spot in [where for where, _ in schemas.problems(name, value)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("expected_tests", expected()),
        ("verify", verify()),
        ("kbench", {}),
        ("inputs", {}),
        ("task", {}),
    ],
)
def test_what_fits_has_no_problems(name: str, value: Any) -> None:
    assert schemas.problems(name, value) == ()
    assert list(unknown_keys(schemas.load(name), value)) == []


def test_unknown_keys_are_found_at_any_depth() -> None:
    value = {
        "environment": {"memroy_mb": 1, "env": {"ANY": "x"}},
        "metadata": {"anything": {"goes": 1}},
        "steps": [{"name": "a"}, {"name": "b", "agents": {}}],
        "verifier": {"environment": {"gpu": 1}},
    }
    found = dict(unknown_keys(schemas.load("task"), value))
    assert sorted(found) == ["environment.memroy_mb", "steps[1].agents", "verifier.environment.gpu"]
    assert "'memory_mb'" in found["environment.memroy_mb"]


def test_messages_say_what_is_meant_instead_of_a_pattern_alone() -> None:
    ((_, message),) = schemas.problems("verify", {**verify(), "reports": ["../x"]})
    assert "stays below workdir" in message


def test_an_up_to_date_run_loads_no_validator() -> None:
    code = (
        "import sys; from kbench_build.steps import validate; "
        "validate.inputs(tree='', surroundings=''); "
        "heavy = {'jsonschema', 'jsonschema_rs', 'kbench_build.rules.catalogue'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, timeout=60
    )
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[dataset]\nname = "a"\nversion = "1.0.0"\nnamespace = "b"\ndescription = "c"\n',
        '[engine]\nkind = "docker"\n[selfcheck]\nruns = 3\n[release]\nrequire = []\n',
        '[[suppress]]\nrule = "a/b"\nreason = "because"\n',
        "[dataset]\nname = 1\n",
        "[selfcheck]\nruns = 0\n",
        "[selfcheck]\nruns = true\n",
        '[release]\nrequire = ["luck"]\n',
        '[[suppress]]\nrule = "a/b"\n',
        "suppress = 1\n",
        "[dataset]\nnmae = 'a'\n",
        "[other]\n",
    ],
)
def test_the_schema_of_kbench_toml_says_what_its_reader_does(tmp_path: Path, text: str) -> None:
    (tmp_path / "kbench.toml").write_text(text, encoding="utf-8")
    fits = not schemas.problems("kbench", tomllib.loads(text))
    try:
        load_config(tmp_path)
    except KbenchError:
        assert not fits
    else:
        assert fits


INPUT = '[[input]]\nfile = "a"\ncommand = ["x"]\n'


@pytest.mark.parametrize(
    "text",
    [
        "",
        f'{INPUT}unpinned = "why"\n',
        f'{INPUT}blake3 = "{"0" * 64}"\nsources = ["x/**"]\nbases = ["t"]\n',
        INPUT,
        f'{INPUT}unpinned = "why"\nblake3 = "{"0" * 64}"\n',
        f'{INPUT}blake3 = "{"0" * 63}"\n',
        f'{INPUT}unpinned = "why"\nbases = []\n',
        f'{INPUT}unpinned = "why"\nother = 1\n',
        '[[input]]\nfile = "../a"\ncommand = ["x"]\nunpinned = "why"\n',
        '[[input]]\nfile = "a"\ncommand = "x"\nunpinned = "why"\n',
        "[other]\n",
    ],
)
def test_the_schema_of_inputs_toml_says_what_its_reader_does(text: str) -> None:
    fits = not schemas.problems("inputs", tomllib.loads(text))
    assert fits == (not parse_inputs(text, "repo")[1])


def test_the_sample_fits_harbors_keys() -> None:
    assert list(unknown_keys(schemas.load("task"), tomllib.loads(TASK_TOML))) == []
