"""The funnel and the yield by month: what the pictures show, and that they are always the same."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbench_build.rim.pictures import Alarm, Bar, Column, Panel, funnel_picture, yield_picture
from kbench_build.rules.funnel import Row, Stage, funnel
from kbench_build.rules.trials import Trial, TrialOutcome
from kbench_build.rules.yields import Drop, Month, drops
from kbench_build.steps.picture import Listed, panels, picture, rows
from tests.upstream_kit import Upstream, new_upstream

MAIN = "import sys; from kbench_build.cli import main; sys.exit(main())"
WITHOUT = "import sys; sys.modules['matplotlib'] = None; "


def words_of(svg: bytes) -> list[str]:
    """The texts of a picture; matplotlib writes each beside the shapes of its letters."""
    return re.findall(r"<!-- (.*?) -->", svg.decode())


def trial(outcome: TrialOutcome, month: int = 1, environment: str = "py") -> dict[str, Any]:
    merged = 1_672_531_200 + 31 * 86_400 * (month - 1) + 86_400
    return {
        "key": "",
        "environment": environment,
        "merged": merged,
        "outcome": outcome,
        "reason": "",
    }


def keep(folder: Path, name: str, **values: Any) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, value in values.items():
        (folder / name / f"{file}.json").write_text(json.dumps(value), encoding="utf-8")


def test_every_total_is_the_one_before_less_its_losses() -> None:
    stages = [Stage(losses={"a": 3, "none": 0, "b": 2}, rest="left"), Stage(losses={}, rest="end")]
    assert funnel("all", 10, stages) == (
        Row(label="all", count=10, kind="total"),
        Row(label="a", count=3, kind="loss"),
        Row(label="b", count=2, kind="loss"),
        Row(label="left", count=5, kind="total"),
        Row(label="end", count=5, kind="total"),
    )


def test_the_funnel_goes_from_merged_changes_to_tasks(tmp_path: Path) -> None:
    outcomes: list[TrialOutcome] = ["valid", "valid", "valid", "no-signal", "nothing-ran"]
    for number, outcome in enumerate(outcomes):
        keep(tmp_path, str(number), trial=trial(outcome))
    keep(tmp_path, "1", statement={"outcome": "rejected"})
    keep(tmp_path, "0", statement={"outcome": "accepted"})
    (tmp_path / "tasks" / "0").mkdir(parents=True)
    names = [str(n) for n in range(6)]
    listed = Listed(
        repository="acme/text",
        merged=9,
        refused={"made by a program": 3},
        tasks={name: tmp_path / "tasks" / name for name in names},
    )
    trials = {n: Trial(**{**trial(o), "merged": 0}) for n, o in zip(names, outcomes, strict=False)}
    found = [(row.label, row.count) for row in rows(tmp_path, listed, trials)]
    assert found == [
        ("merged changes", 9),
        ("made by a program", 3),
        ("candidates", 6),
        ("no test tells the fix from its absence", 1),
        ("nothing ran: no report, or no test file could be loaded", 1),
        ("not tried yet", 1),
        ("proved by running", 3),
        ("the statement was rejected", 1),
        ("without a statement", 1),
        ("tasks", 1),
    ]
    funnel_svg, yield_svg = picture(tmp_path, listed, "svg")
    assert {"merged changes", "-3", "made by a program", "9"} <= set(
        words_of(funnel_svg.read_bytes())
    )
    assert "py: 3 of 5 became tasks" in words_of(yield_svg.read_bytes())


def columns(shares: list[float], nothing: list[float]) -> list[Month]:
    return [
        Month(
            environment="jdk17",
            month=f"2023-{n + 1:02}",
            tried=40,
            valid=round(40 * share),
            nothing_ran=round(40 * none),
        )
        for n, (share, none) in enumerate(zip(shares, nothing, strict=True))
    ]


def test_an_alarm_is_marked_and_what_did_not_run_stands_apart() -> None:
    months = columns([0.7] * 4 + [0.15] * 2 + [0.7] * 4, [0.1] * 4 + [0.6] * 2 + [0.1] * 4)
    marked = yield_picture("acme/text", panels(months, drops(months)))
    assert "alarm: 15 % instead of 70 %" in words_of(marked)
    assert {"became a task", "ran, no task", "nothing ran", "2023-05"} <= set(words_of(marked))
    quiet = yield_picture("acme/text", panels(months, ()))
    assert not any(word.startswith("alarm") for word in words_of(quiet))


def test_months_without_a_candidate_keep_their_place() -> None:
    columns = tuple(
        Column(month=month, tried=4, valid=2, nothing_ran=0) for month in ("2023-11", "2024-02")
    )
    shown = words_of(yield_picture("acme/text", [Panel(name="py", columns=columns)]))
    assert {"2023-11", "2023-12", "2024-01", "2024-02"} <= set(shown)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_values_give_the_same_bytes_anywhere(kind: str, tmp_path: Path) -> None:
    code = f"""
import sys
from kbench_build.rim.pictures import *
alarm = Alarm(first="2023-01", last="2023-01", share=.1, usual=.7)
columns = (Column(month="2023-01", tried=9, valid=1, nothing_ran=3),)
panels = [Panel(name="e", columns=columns, alarm=alarm)]
bars = [Bar(label="a $x_1$ b", count=9, is_total=True), Bar(label="-", count=2, is_total=False)]
sys.stdout.buffer.write(funnel_picture("t", bars, {kind!r}))
sys.stdout.buffer.write(yield_picture("t", panels, {kind!r}))
"""
    (tmp_path / "matplotlibrc").write_text("font.size: 30\naxes.facecolor: red\n", encoding="utf-8")
    strange = {"MATPLOTLIBRC": str(tmp_path), "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    made = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "MPLCONFIGDIR": str(tmp_path / "none"), **env},
            capture_output=True,
            check=True,
        ).stdout
        for env in ({"PYTHONHASHSEED": "1"}, strange)
    ]
    assert made[0] == made[1]
    assert made[0].startswith(b"<?xml" if kind == "svg" else b"\x89PNG")


def test_hostile_names_are_drawn_as_they_are() -> None:
    name = "--> <script>\x00 $\\frac{1}{0}$ " + "x" * 5000
    bars = [Bar(label=name, count=0, is_total=True)]
    assert b"<script>" not in funnel_picture(name, bars)
    panel = Panel(name=name, columns=(Column(month="2023-01", tried=1, valid=0, nothing_ran=0),))
    alarm = Alarm(first="2023-01", last="2023-01", share=0, usual=1)
    assert yield_picture(name, [panel, Panel(name="b", columns=panel.columns, alarm=alarm)])


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    repository = new_upstream(tmp_path)
    repository.git("remote", "add", "origin", "https://forge.example.org/acme/text.git")
    repository.commit("README.md", "Begin")
    for number in (1, 2):
        for path in ("src/main/kotlin/A.kt", "src/test/kotlin/ATest.kt"):
            place = repository.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("a", encoding="utf-8") as file:
                file.write(f"{number} a\n{number} b\n{number} c\n")
        repository.commit(".note", f"Mend it (#{number})")
    return repository


def kbench(*argv: str, cwd: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", before + MAIN, "mine", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_command_draws_both(kind: str, upstream: Upstream, tmp_path: Path) -> None:
    done = kbench(str(upstream.root), "--pictures", kind, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("funnel", "yield"):
        assert (tmp_path / "mined" / "acme_text" / f"{name}.{kind}").stat().st_size > 1000
        assert f"written to mined/acme_text/{name}.{kind}" in done.stdout


def test_without_the_extra_one_line_names_it_before_any_work(
    upstream: Upstream, tmp_path: Path
) -> None:
    done = kbench(str(upstream.root), "--pictures", "svg", cwd=tmp_path, before=WITHOUT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: pictures need matplotlib: install kbench-build[mine]\n"
    plain = kbench(str(upstream.root), cwd=tmp_path, before=WITHOUT)
    assert plain.returncode == 0


def test_an_alarm_becomes_a_mark() -> None:
    months = columns([0.7, 0.7], [0, 0])
    drop = Drop(
        environment="jdk17",
        first="2023-01",
        last="2023-02",
        share=0.1,
        usual=0.7,
        tried=9,
        p_value=0.0,
    )
    (panel,) = panels(months, [drop])
    assert panel.alarm == Alarm(first="2023-01", last="2023-02", share=0.1, usual=0.7)
