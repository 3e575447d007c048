"""What is varied from run to run, what an image allows, and the shell that finds out and loads."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from kbench_build import runtime
from kbench_build.rules.variation import (
    PLAIN,
    Allowed,
    Variation,
    allowed,
    fit,
    loaded_cpus,
    not_varied,
    to_json,
    varied_data,
    wish_of,
)

SCRIPTS = Path(runtime.__file__).parent
ALL = Allowed(
    locales=frozenset({"C", "C.utf8", "de_DE.utf8", "tr_TR.utf8"}),
    faketime="/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    java=True,
)
RUNS = range(1, 6)


def test_the_first_run_is_plain_and_each_run_is_the_same_everywhere() -> None:
    assert fit(wish_of(1), ALL, {}) == PLAIN
    assert str(PLAIN) == ""
    assert [wish_of(n) for n in RUNS] == [wish_of(n) for n in RUNS]
    assert len({repr(wish_of(n)) for n in RUNS}) == len(RUNS)
    assert wish_of(6) == wish_of(2)


def test_three_runs_vary_all_that_must_not_matter() -> None:
    found = [fit(wish_of(n), ALL, {}) for n in (1, 2, 3)]
    names = {name for one in found for name in one.environment}
    assert {"TZ", "LC_ALL", "PYTHONHASHSEED", "FAKETIME"} <= names
    assert any(one.loaded for one in found)
    assert not_varied(found) == ()


def test_time_zones_have_odd_offsets_and_locales_differ() -> None:
    zones = [wish_of(n).time_zone for n in RUNS if wish_of(n).time_zone]
    assert zones == ["America/St_Johns", "Pacific/Chatham", "Asia/Kathmandu"]
    locales = [wish_of(n).locale for n in RUNS if wish_of(n).locale]
    assert locales == ["de_DE.UTF-8", "tr_TR.UTF-8", "C"]


def test_what_an_image_lacks_isnt_varied_and_is_said() -> None:
    bare = [fit(wish_of(n), Allowed(), {}) for n in RUNS]
    assert not_varied(bare) == (
        "locale: the image holds no de_DE.UTF-8",
        "clock: the image holds no libfaketime",
        "locale: the image holds no tr_TR.UTF-8",
    )
    assert bare[1].environment == {"TZ": "America/St_Johns", "PYTHONHASHSEED": "1",
                                   "PERL_HASH_SEED": "1"}  # fmt: skip
    assert bare[4].environment["LC_ALL"] == "C"


def test_a_java_takes_a_locale_that_its_image_lacks() -> None:
    java = fit(wish_of(2), Allowed(java=True), {"JAVA_TOOL_OPTIONS": "-Xmx1g"})
    assert java.environment["JAVA_TOOL_OPTIONS"] == "-Xmx1g -Duser.language=de -Duser.country=DE"
    assert "LC_ALL" not in java.environment


def test_what_a_task_sets_for_its_command_stays() -> None:
    given = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "LD_PRELOAD": "/x.so"}
    found = [fit(wish_of(n), ALL, given) for n in RUNS]
    assert {name for one in found for name in one.environment} == {"PERL_HASH_SEED"}
    assert not_varied(found) == (
        "time zone: the task sets TZ",
        "locale: the task sets LC_ALL",
        "clock: the task sets FAKETIME or LD_PRELOAD",
    )


def test_a_variation_changes_the_data_and_nothing_else() -> None:
    data = {"command": ["make", "test"], "environment": {"A": "1"}, "timeout_sec": 60, "hidden": {}}
    varied = varied_data(data, Variation(environment={"TZ": "x"}, loaded=True))
    assert varied == {
        "command": ["sh", "/kbench/vary/run_loaded.sh", "1", "make", "test"],
        "environment": {"A": "1", "TZ": "x"},
        "timeout_sec": 240.0,
        "hidden": {},
    }
    assert varied_data(data, PLAIN) == data


def test_a_loaded_run_has_fewer_cpus() -> None:
    assert [loaded_cpus(n) for n in (None, 0.5, 1, 4)] == [1.0, 0.5, 0.5, 2.0]


def test_a_run_says_what_was_varied() -> None:
    one = fit(wish_of(3), Allowed(), {})
    assert str(one) == "a loaded machine"
    assert json.loads(json.dumps(to_json(one, 2.0))) == {
        "environment": {},
        "load": {"cpus": 1.0, "busy_loops": 1, "time_limits": "x 4"},
        "left_out": ["clock: the image holds no libfaketime"],
    }
    shown = str(fit(wish_of(2), ALL, {}))
    assert shown == "TZ=America/St_Johns, LC_ALL=de_DE.UTF-8, PYTHONHASHSEED=1"


@pytest.mark.parametrize("output", ["", "junk", "faketime relative/x\nlocale\n", "\0 \n" * 9])
def test_an_image_that_says_nothing_sensible_allows_nothing(output: str) -> None:
    assert allowed(output) == Allowed()


def test_the_shell_finds_what_an_image_holds(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", SCRIPTS / "what_can_vary.sh"], capture_output=True, text=True, check=True
    )
    assert allowed(done.stdout).has_locale("C")
    (tmp_path / "java").write_text("")
    (tmp_path / "java").chmod(0o755)
    (tmp_path / "locale").write_text("#!/bin/sh\nprintf 'C\\ntr_TR.utf8\\n'\n")
    (tmp_path / "locale").chmod(0o755)
    done = subprocess.run(
        ["sh", SCRIPTS / "what_can_vary.sh"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    found = allowed(done.stdout)
    assert (found.java, found.has_locale("tr_TR.UTF-8")) == (True, True)
    assert not found.has_locale("de_DE.UTF-8")


def test_a_command_beside_busy_loops_keeps_its_exit_code_and_leaves_none(tmp_path: Path) -> None:
    script = 'echo "$$" >pid; sleep 0.3; exit 7'
    loaded = ["sh", str(SCRIPTS / "run_loaded.sh"), "2", "sh", "-c", script]
    done = subprocess.run(loaded, cwd=tmp_path, check=False, timeout=30)
    assert done.returncode == 7
    time.sleep(0.3)
    left = subprocess.run(["pgrep", "-f", str(SCRIPTS / "run_loaded.sh")], capture_output=True,
                          check=False)  # fmt: skip
    assert left.stdout == b""


def test_busy_loops_end_when_their_shell_is_killed(tmp_path: Path) -> None:
    loaded = ["sh", str(SCRIPTS / "run_loaded.sh"), "1", "sleep", "1"]
    with subprocess.Popen(loaded, cwd=tmp_path) as run:
        time.sleep(0.3)
        run.kill()
        run.wait(timeout=10)
    deadline = time.monotonic() + 10
    while subprocess.run(["pgrep", "-f", "run_loaded.sh 1 sleep 1"], capture_output=True,
                         check=False).stdout:  # fmt: skip
        assert time.monotonic() < deadline
        time.sleep(0.1)
