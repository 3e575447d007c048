"""Changes between releases: which part, do they affect scores, which tasks a base touches."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbench_build.rules.about_task import PARTS, Part, about_task, part_of, part_of_setting
from kbench_build.rules.changes import Changes, parse_changes
from kbench_build.rules.records import FormatError
from tests.release_kit import ADDER, TEXT, Kit, make_kit


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    kit = make_kit(tmp_path / "set")
    kit.released()
    return kit


def after(kit: Kit, version: str = "2.0.0") -> Changes:
    """Release again under a version that any change may have, and read what changed."""
    kit.rebuild()
    kit.configure(version)
    return parse_changes(json.loads((kit.released() / "changes.json").read_bytes()))


Edit = Callable[[Kit], None]


def write(path: str) -> Edit:
    return lambda kit: kit.write(f"tasks/{ADDER}/{path}", "another text")


def in_toml(old: str, new: str) -> Edit:
    return lambda kit: kit.replace(f"tasks/{ADDER}/task.toml", old, new)


def run_bit(kit: Kit) -> None:
    kit.path(f"tasks/{ADDER}/tests/test.sh").chmod(0o755)


EDITS: Mapping[str, tuple[Edit, Part]] = {
    "instruction": (write("instruction.md"), "instruction"),
    "file of the environment": (write("environment/new"), "environment"),
    "time-out": (in_toml("60.0", "90.0"), "environment"),
    "cpus": (in_toml("cpus = 2", "cpus = 4"), "environment"),
    "network": (in_toml("cpus = 2", 'cpus = 2\nnetwork_mode = "public"'), "environment"),
    "solution": (write("solution/fix.patch"), "solution"),
    "tests": (write("tests/test.sh"), "tests"),
    "run bit": (run_bit, "tests"),
    "metadata": (in_toml("easy", "hard"), "metadata"),
    "schema version": (in_toml('"1.4"', '"1.3"'), "metadata"),
    "name": (in_toml("kotlin-bench/", "other/"), "metadata"),
    "comment": (in_toml("[task]", "# x\n[task]"), "metadata"),
    "another way to write it": (in_toml("60.0", "60"), "metadata"),
    "readme": (write("README.md"), "metadata"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_counted_to_its_part(kit: Kit, edit: str) -> None:
    make, part = EDITS[edit]
    make(kit)
    changes = after(kit)
    (task,) = changes.tasks.changed
    affects = part in {"instruction", "environment", "tests"}
    assert (task.id, task.parts, task.affects_scores) == (ADDER, (part,), affects)
    assert (changes.least_bump, changes.affects_scores) == (
        "major" if affects else "patch",
        affects,
    )


def test_a_changed_setting_is_named_with_both_values(kit: Kit) -> None:
    kit.replace(f"tasks/{ADDER}/task.toml", "cpus = 2", "cpus = 4")
    kit.replace(f"tasks/{ADDER}/task.toml", "memory_mb = 2048\n", "")
    (task,) = after(kit).tasks.changed
    assert [(s.key, s.before, s.after) for s in task.settings] == [
        ("environment.cpus", 2, 4),
        ("environment.memory_mb", 2048, None),
    ]


def test_files_of_a_task_are_listed(kit: Kit) -> None:
    kit.write(f"tasks/{ADDER}/tests/new", "x")
    kit.path(f"tasks/{ADDER}/solution/fix.patch").unlink()
    kit.write(f"tasks/{ADDER}/instruction.md", "x")
    (task,) = after(kit).tasks.changed
    assert task.files.added == ("tests/new",)
    assert task.files.removed == ("solution/fix.patch",)
    assert task.files.changed == ("instruction.md",)
    assert task.parts == ("instruction", "solution", "tests")


def test_added_and_removed_tasks(kit: Kit) -> None:
    kit.add_task("acme_new-1", "adder", "jdk17")
    changes = after(kit, "1.1.0")
    assert (changes.tasks.added, changes.least_bump) == (("acme_new-1",), "minor")
    assert not changes.affects_scores
    kit.remove_task(ADDER)
    changes = after(kit, "2.0.0")
    assert (changes.tasks.removed, changes.least_bump) == ((ADDER,), "major")
    assert changes.affects_scores


def test_a_changed_base_touches_the_tasks_on_it(kit: Kit) -> None:
    kit.write("bases/text/größe.txt", "43\n")
    changes = after(kit)
    (base,) = changes.bases.changed
    assert (base.name, base.tasks, base.files.changed) == ("text:k19", (TEXT,), ("größe.txt",))
    (task,) = changes.tasks.changed
    assert (task.id, task.parts, task.bases) == (TEXT, ("environment",), ("text:k19",))
    assert changes.least_bump == "major"


def test_a_base_below_other_bases_touches_their_tasks(kit: Kit) -> None:
    kit.write("bases/debian/Dockerfile", "FROM scratch\nADD rootfs.tar.gz /\n")
    changes = after(kit)
    (base,) = changes.bases.changed
    assert (base.name, base.tasks) == ("debian:slim", (ADDER, TEXT))
    assert [t.bases for t in changes.tasks.changed] == [("debian:slim",)] * 2


def test_a_file_of_a_base_that_no_build_sees_touches_no_task(kit: Kit) -> None:
    kit.write("bases/adder/notes.md", "Built twice a year.\n")
    changes = after(kit, "1.0.1")
    (base,) = changes.bases.changed
    assert (base.is_rebuilt, base.tasks, changes.tasks.changed) == (False, (), ())
    assert changes.least_bump == "patch"


def test_without_recipes_every_change_of_a_base_counts(kit: Kit) -> None:
    # No engine was there to tell what a build sees.
    kit.write("bases/adder/notes.md", "Built twice a year.\n")
    kit.rebuild()
    for image, recipe in list(kit.recipes.items()):
        kit.recipes[image] = replace(recipe, digest="")
    kit.configure("2.0.0")
    changes = json.loads((kit.released() / "changes.json").read_bytes())
    assert changes["bases"]["changed"][0]["tasks"] == [ADDER]


def test_other_files_need_a_patch(kit: Kit) -> None:
    kit.write("LICENSE", "MIT\n")
    kit.write("bases/manifest", kit.path("bases/manifest").read_text("utf-8") + "# end\n")
    changes = after(kit, "1.0.1")
    assert changes.other_files.changed == ("LICENSE", "bases/manifest", "kbench.toml")
    assert changes.least_bump == "patch"


def test_in_a_first_release_everything_is_added(tmp_path: Path) -> None:
    folder = make_kit(tmp_path / "set").released()
    changes = parse_changes(json.loads((folder / "changes.json").read_bytes()))
    assert changes.previous is None
    assert changes.tasks.added == (ADDER, TEXT)
    assert changes.least_bump == "none"


# The changelog.


def test_the_changelog_has_counts_per_part_and_the_gate(kit: Kit) -> None:
    kit.write(f"tasks/{ADDER}/instruction.md", "x")
    kit.replace(f"tasks/{TEXT}/task.toml", "cpus = 2", "cpus = 4")
    kit.write(f"tasks/{TEXT}/tests/test.sh", "x")
    kit.configure("2.0.0")
    text = (kit.released() / "CHANGELOG.md").read_text(encoding="utf-8")
    assert (
        "Since 1.0.0: 2 tasks changed; instruction rewritten in 1, environment changed in 1" in text
    )
    assert "tests revised in 1" in text
    assert "Scores can't be compared" in text
    assert "Proved: validate 2 of 2, seal 2 of 2, selfcheck 2 of 2." in text
    assert f"- `{TEXT}`: environment changed, tests revised; `environment.cpus`: 2 → 4" in text


def test_the_changelog_keeps_the_sections_of_earlier_releases(kit: Kit) -> None:
    kit.add_task("acme_new-1", "adder", "jdk17")
    kit.configure("1.1.0")
    kit.released()
    kit.remove_task("acme_new-1")
    kit.configure("2.0.0")
    text = (kit.released() / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = [line for line in text.splitlines() if line.startswith(("# ", "## "))]
    assert heads == ["# Changes of demo", "## 2.0.0", "## 1.1.0", "## 1.0.0"]
    assert text.count("First release: 2 tasks.") == 1


# Parts.


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("instruction.md", "instruction"),
        ("environment/Dockerfile", "environment"),
        ("solution/solve.sh", "solution"),
        ("tests/a/b", "tests"),
        ("README.md", "metadata"),
        ("steps/one/instruction.md", "instruction"),
        ("steps/one/tests/test.sh", "tests"),
        ("steps/one/solution/solve.sh", "solution"),
        ("steps/one/setup.sh", "environment"),
        ("notes/environment", "metadata"),
    ],
)
def test_every_file_has_a_part(path: str, part: str) -> None:
    assert part_of(path) == part
    assert part in PARTS


def test_settings_of_the_solution_are_no_environment() -> None:
    assert part_of_setting("solution.env.KEY") == "solution"
    assert part_of_setting("verifier.timeout_sec") == "environment"


@pytest.mark.parametrize("document", [{}, {"metadata": 3, "task": []}, {"task": {"name": 7}}])
def test_a_task_toml_of_odd_shape_says_nothing(document: dict[str, Any]) -> None:
    about = about_task(document)
    assert (about.harbor_name, about.license, about.base_commit) == (None, "", "")


def test_changes_of_another_form_are_named_with_the_path() -> None:
    with pytest.raises(FormatError, match=r"^name: is missing"):
        parse_changes({})
