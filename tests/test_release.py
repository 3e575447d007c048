"""Releasing: what is refused and how it is said, what is written, what is never touched."""

import json
import os
import stat
import subprocess
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import zstandard

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.model import Finding
from kbench_build.rim.archive import MEMBER_TIME
from kbench_build.rim.dataset import open_dataset
from kbench_build.rim.tree import listing, scan_tree
from kbench_build.rules import findings
from kbench_build.steps import release as release_step
from tests.release_kit import (
    ADDER,
    STEPS,
    TEXT,
    Kit,
    errors_of,
    make_kit,
    read_lock,
    report,
    rewrite,
    rules_of,
    snapshot,
    verify,
)

ROOT = Path(__file__).parent.parent


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return make_kit(tmp_path / "set")


def one(found: list[Finding], rule: str) -> Finding:
    (finding,) = [f for f in found if f.rule == rule]
    return finding


# What is written.


def test_a_release_holds_its_files_and_nothing_else(kit: Kit) -> None:
    folder = kit.released()
    assert folder == kit.path("dist/demo-1.0.0")
    assert {p.name for p in folder.iterdir()} == {
        "demo-1.0.0.tar.zst",
        "lock.json",
        "CHANGELOG.md",
        "changes.json",
        "README.md",
        "B3SUMS",
        "SHA256SUMS",
    }
    assert [p.name for p in kit.path("dist").iterdir()] == ["demo-1.0.0"]


def test_a_release_verifies(kit: Kit) -> None:
    checked = verify(kit.released())
    assert checked.ok, checked.summary
    assert not checked.data["findings"]


def test_files_of_a_release_are_read_only(kit: Kit) -> None:
    for path in kit.released().iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o444


def members(folder: Path) -> dict[str, tarfile.TarInfo]:
    data = zstandard.ZstdDecompressor().stream_reader(
        (folder / f"{folder.name}.tar.zst").open("rb")
    )
    with tarfile.open(fileobj=data, mode="r|") as tar:
        return {m.name: m for m in tar}


def test_the_tarball_holds_the_dataset_below_one_folder(kit: Kit) -> None:
    kit.write("schemas/task.schema.json", "{}")
    kit.write("dist/older/notes", "no release")
    kit.write(".kbench/lock", "1")
    kit.write("curation/ledger.jsonl", "")
    kit.write(f"tasks/{ADDER}/tests/__pycache__/x.pyc", b"\0")
    found = set(members(kit.released()))
    expected = {
        f"demo-1.0.0/{p.relative_to(kit.root)}"
        for folder in ("bases", "tasks", "schemas")
        for p in kit.path(folder).rglob("*")
        if not p.is_dir() and "__pycache__" not in p.parts
    }
    made = {"kbench.toml", "LICENSE", "README.md", "tasks/dataset.toml"}
    assert found == expected | {f"demo-1.0.0/{name}" for name in made}


def test_members_say_nothing_of_who_packed_them_and_when(kit: Kit) -> None:
    for member in members(kit.released()).values():
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert member.mtime == MEMBER_TIME > 315_532_800  # 1 January 1980
        assert member.mode in ((0o777,) if member.issym() else (0o644, 0o755))


def test_gnu_tar_unpacks_the_tarball(kit: Kit, tmp_path: Path) -> None:
    folder = kit.released()
    into = tmp_path / "out"
    into.mkdir()
    plain = zstandard.ZstdDecompressor().stream_reader((folder / "demo-1.0.0.tar.zst").open("rb"))
    subprocess.run(["tar", "-xf", "-", "-C", into], input=plain.read(), check=True)
    for path in (kit.path("tasks"), kit.path("bases")):
        unpacked = into / "demo-1.0.0" / path.name
        ours = snapshot(path)
        theirs = {k: v for k, v in snapshot(unpacked).items() if k != "dataset.toml"}
        assert {k: v[1] for k, v in ours.items()} == {k: v[1] for k, v in theirs.items()}
        assert {k: v[0] & 0o111 for k, v in ours.items()} == {
            k: v[0] & 0o111 for k, v in theirs.items()
        }


def test_the_content_hash_is_over_task_and_base_digests_alone(kit: Kit) -> None:
    first = kit.release().data["content"]
    kit.replace("kbench.toml", 'name = "demo"', 'name = "other"')
    kit.write("LICENSE", "MIT\n")
    kit.configure("3.0.0")
    assert kit.release().data["content"] == first
    kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    assert kit.release().data["content"] != first


def test_the_dockerfile_that_a_base_names_is_content(kit: Kit) -> None:
    kit.write("bases/text/Dockerfile.two", "FROM scratch\n")
    first = kit.release().data["content"]
    kit.replace("bases/manifest", "text k19 Dockerfile\n", "text k19 Dockerfile.two\n")
    assert kit.release().data["content"] != first


def test_another_bases_dockerfile_is_no_part_of_a_base(kit: Kit) -> None:
    before = {b.name: b.digest for b in read_lock(kit.released()).bases}
    kit.write("bases/adder/Dockerfile.jdk21", "FROM kotlin-bench/debian:slim\n")
    manifest = kit.path("bases/manifest").read_text(encoding="utf-8")
    kit.write("bases/manifest", manifest + "adder jdk21 Dockerfile.jdk21\n")
    kit.rebuild()
    kit.configure("1.1.0")
    after = {b.name: b.digest for b in read_lock(kit.released()).bases}
    assert after["adder:jdk17"] == before["adder:jdk17"]
    assert after["adder:jdk21"] != after["adder:jdk17"]


def test_the_lock_holds_digests_evidence_and_versions(kit: Kit) -> None:
    kit.change_report("selfcheck", ADDER, made="", data={"runs": 3, "results": ["x" * 5000]})
    kit.reports["build_images"] = {ADDER: report("build_images", ADDER, made="sha256:abc")}
    kit.expected["build_images"] = {ADDER: f"build_images {ADDER}"}
    folder = kit.released()
    lock = read_lock(folder)
    by_path = {f.path: f for f in lock.files}
    entry = by_path[f"tasks/{ADDER}/instruction.md"]
    assert entry.digest == digest.of_bytes(b"Adding is broken.\n")
    assert by_path[f"tasks/{TEXT}/tests/test.sh"].mode == "100755"
    task = next(t for t in lock.tasks if t.id == ADDER)
    assert task.bases == ("adder:jdk17",)
    assert task.settings["environment"] == {"cpus": 2, "memory_mb": 2048}
    assert (task.license, task.harbor_name) == ("Apache-2.0", f"kotlin-bench/{ADDER}")
    seal, selfcheck, image = (task.evidence[s] for s in ("seal", "selfcheck", "build_images"))
    assert seal is not None
    assert selfcheck is not None
    assert image is not None
    assert seal.data["proof"]["refs"] == ["HEAD"]
    assert selfcheck.data == {
        "runs": 3,
        "results": {"blake3": digest.of_json(["x" * 5000]), "entries": 1},
    }
    assert image.made == "sha256:abc"
    assert lock.archive.zstd == ".".join(map(str, zstandard.ZSTD_VERSION))
    assert "tests/test.sh" in lock.verifier.files
    assert lock.verifier.version
    assert "task.schema.json" in lock.schemas
    assert lock.evidence.keys() == {"validate/@dataset"}


@pytest.mark.parametrize("name", ["lock", "changes"])
def test_what_is_written_fits_its_schema(kit: Kit, name: str) -> None:
    kit.released()
    kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    kit.replace(f"tasks/{TEXT}/task.toml", "cpus = 2", "cpus = 4")
    kit.configure("2.0.0")
    folder = kit.released()
    schema = json.loads((ROOT / f"schemas/{name}.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    value = json.loads((folder / f"{name}.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(value)
    value["unknown"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(value)


def test_suppressed_findings_go_into_the_lock_with_their_reasons(kit: Kit) -> None:
    kept = Finding(rule="x/y", severity="error", file=f"tasks/{ADDER}", message="m", mend="n")
    data = {"suppressed": [{**findings.to_json(kept), "reason": "upstream is like that"}] * 3}
    kit.change_report("validate", ADDER, data=data)
    folder = kit.released()
    suppressed, _, _ = read_lock(folder).suppressed
    assert (suppressed.rule, suppressed.reason) == ("x/y", "upstream is like that")
    row = f"| x/y | 3 | tasks/{ADDER} | upstream is like that |"
    assert row in (folder / "README.md").read_text(encoding="utf-8")


def test_the_tarball_and_the_card_dont_depend_on_earlier_releases(kit: Kit, tmp_path: Path) -> None:
    kit.released()
    kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    kit.configure("2.0.0")
    with_earlier = kit.released()
    other = make_kit(tmp_path / "other")
    other.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    other.configure("2.0.0")
    alone = other.released()
    for name in ("demo-2.0.0.tar.zst", "README.md"):
        assert (with_earlier / name).read_bytes() == (alone / name).read_bytes()
    assert (with_earlier / "CHANGELOG.md").read_bytes() != (alone / "CHANGELOG.md").read_bytes()


# What is refused.


@pytest.mark.parametrize("step", STEPS)
def test_missing_evidence_is_refused(kit: Kit, step: str) -> None:
    del kit.reports[step][ADDER]
    found = one(kit.refusals(), f"release/{step}-missing")
    assert found.file == f"tasks/{ADDER}"
    assert found.message == f"{step} was never run for {ADDER}"
    assert f"doit '{step}:{ADDER}'" in found.mend


@pytest.mark.parametrize("step", STEPS)
def test_stale_evidence_is_refused(kit: Kit, step: str) -> None:
    kit.expected[step][ADDER] = "other inputs"
    found = one(kit.refusals(), f"release/{step}-stale")
    assert f"{step} of {ADDER} is stale" in found.message


@pytest.mark.parametrize("step", STEPS)
def test_failing_evidence_is_refused(kit: Kit, step: str) -> None:
    kit.change_report(step, ADDER, ok=False, summary="nop scored 1")
    found = one(kit.refusals(), f"release/{step}-failing")
    assert f"{step} of {ADDER} failed: nop scored 1" in found.message


def test_findings_of_severity_error_are_refused(kit: Kit) -> None:
    found = Finding(rule="a/b", severity="error", file="x.json", message="duplicate id", mend="n")
    data = {"findings": [findings.to_json(found)] * 2}
    kit.change_report("validate", TEXT, ok=False, data=data)
    refusal = one(kit.refusals(), "release/error-findings")
    assert refusal.message == (
        f"{TEXT} has 2 findings of severity error; the first: x.json: duplicate id"
    )


def test_findings_about_the_dataset_are_refused_too(kit: Kit) -> None:
    kit.change_report("validate", "@dataset", ok=False)
    assert one(kit.refusals(), "release/validate-failing").file == "."


def test_a_dataset_without_tasks_is_refused(kit: Kit) -> None:
    kit.remove_task(ADDER)
    kit.remove_task(TEXT)
    assert rules_of(kit.refusals()) == {"release/no-tasks"}


def test_everything_is_refused_at_once(kit: Kit) -> None:
    kit.released()
    kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    kit.configure("1.0.1")
    del kit.reports["seal"][ADDER]
    kit.expected["selfcheck"][TEXT] = "other"
    kit.change_report("validate", TEXT, ok=False)
    assert rules_of(kit.refusals()) == {
        "release/seal-missing",
        "release/selfcheck-stale",
        "release/validate-failing",
        "release/bump-too-small",
    }


def test_a_version_that_exists_with_other_content_is_refused(kit: Kit) -> None:
    kit.released()
    kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    found = one(kit.refusals(), "release/version-taken")
    assert found.file == "dist/demo-1.0.0"
    assert "with other content" in found.message


def test_a_version_that_doesnt_move_when_content_does_is_refused(kit: Kit) -> None:
    kit.configure("1.2.0")
    kit.released()
    kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    kit.configure("1.1.0")
    found = one(kit.refusals(), "release/version-behind")
    assert "1.1.0 doesn't come after it" in found.message
    assert "1.2.1" in found.mend


def test_a_version_must_come_after_the_newest_even_with_the_same_content(kit: Kit) -> None:
    kit.released()
    kit.configure("0.9.0")
    message = one(kit.refusals(), "release/version-behind").message
    assert message == "there is already release 1.0.0, but version 0.9.0 doesn't come after it"


def test_the_same_release_can_be_made_anew_elsewhere(kit: Kit, tmp_path: Path) -> None:
    folder = kit.released().rename(tmp_path / "kept")
    again = kit.released(previous=folder)
    assert (again / "demo-1.0.0.tar.zst").read_bytes() == (
        folder / "demo-1.0.0.tar.zst"
    ).read_bytes()


def test_a_version_that_is_none_is_refused(kit: Kit) -> None:
    kit.configure("next")
    assert "'next' is no version" in one(kit.refusals(), "release/version").message


@pytest.mark.parametrize(
    ("version", "change", "reason", "least"),
    [
        ("1.1.0", "edit", f"{ADDER} changed (instruction)", "2.0.0"),
        ("1.0.1", "add", "acme_new-1 added", "1.1.0"),
        ("1.1.0", "remove", f"{TEXT} removed", "2.0.0"),
    ],
)
def test_a_bump_that_is_too_small_is_refused_with_the_reason(
    kit: Kit, version: str, change: str, reason: str, least: str
) -> None:
    kit.released()
    changes: dict[str, Callable[[], None]] = {
        "edit": lambda: kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n"),
        "add": lambda: kit.add_task("acme_new-1", "adder", "jdk17"),
        "remove": lambda: kit.remove_task(TEXT),
    }
    changes[change]()
    kit.configure(version)
    found = one(kit.refusals(), "release/bump-too-small")
    assert reason in found.message
    assert least in found.mend
    kit.configure(least)
    kit.released()


def test_metadata_alone_needs_only_a_patch(kit: Kit) -> None:
    kit.released()
    kit.replace(f"tasks/{ADDER}/task.toml", '"easy"', '"hard"')
    kit.configure("1.0.1")
    changes = json.loads((kit.released() / "changes.json").read_bytes())
    assert changes["least_bump"] == "patch"
    assert changes["affects_scores"] is False


def test_dated_versions_must_move_forward(kit: Kit) -> None:
    kit.configure("2026.11.29")
    kit.released()
    kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    kit.configure("2026.11.28")
    assert rules_of(kit.refusals()) == {"release/version-behind"}
    kit.configure("2026.11.29.1")
    kit.released()


def test_an_earlier_release_elsewhere_can_be_named(kit: Kit, tmp_path: Path) -> None:
    folder = kit.released().rename(tmp_path / "kept")
    kit.write(f"tasks/{ADDER}/instruction.md", "Another text.\n")
    kit.configure("1.0.1")
    assert rules_of(kit.refusals(previous=folder)) == {"release/bump-too-small"}
    with pytest.raises(KbenchError, match=r"holds no lock\.json"):
        kit.release(previous=tmp_path)


def test_releases_of_other_datasets_dont_count(kit: Kit) -> None:
    kit.replace("kbench.toml", 'name = "demo"', 'name = "other"')
    kit.released()
    kit.configure("0.1.0")
    assert read_lock(kit.released()).previous is None


def test_an_unreadable_earlier_lock_is_one_line(kit: Kit) -> None:
    rewrite(kit.released() / "lock.json", b'{"name": 7}')
    kit.configure("1.0.1")
    with pytest.raises(KbenchError, match=r"demo-1\.0\.0/lock\.json: name: must be a string"):
        kit.release()


@pytest.mark.parametrize("name", ["a\nb", "a\\b", os.fsdecode(b"\xff")])
def test_file_names_that_no_list_can_hold_are_refused(kit: Kit, name: str) -> None:
    kit.write(f"tasks/{ADDER}/tests/{name}", "")
    assert rules_of(kit.refusals()) == {"release/file-name"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../etc/passwd", "x/../../y"])
def test_links_that_lead_out_are_refused(kit: Kit, target: str) -> None:
    kit.path(f"tasks/{ADDER}/tests/link").symlink_to(target)
    assert rules_of(kit.refusals()) == {"release/link"}


def test_a_name_that_is_no_folders_name_is_refused(kit: Kit) -> None:
    kit.replace("kbench.toml", 'name = "demo"', 'name = "../demo"')
    assert rules_of(kit.refusals()) == {"release/name"}


def test_a_task_toml_that_isnt_toml_is_refused_with_its_place(kit: Kit) -> None:
    kit.write(f"tasks/{ADDER}/task.toml", 'a = 1\nb = "\n')
    found = one(kit.refusals(), "release/task-toml")
    assert found.file == f"tasks/{ADDER}/task.toml"
    assert "line 2" in found.message


# The same again.


def test_the_same_version_with_the_same_content_is_nothing_to_do(kit: Kit) -> None:
    kit.released()
    before = snapshot(kit.path("dist"))
    again = kit.release()
    assert again.ok
    assert not again.data["is_new"]
    assert "with the same content" in again.summary
    assert snapshot(kit.path("dist")) == before


def test_a_modified_release_is_pointed_out_not_mended(kit: Kit) -> None:
    folder = kit.released()
    rewrite(folder / "README.md", b"mine now\n")
    assert one(kit.refusals(), "release/modified").file == "dist/demo-1.0.0/README.md"


def test_a_folder_that_is_no_release_isnt_touched(kit: Kit) -> None:
    kit.write("dist/demo-1.0.0/notes", "keep me")
    assert rules_of(kit.refusals()) == {"release/not-a-release"}


def test_files_beside_the_content_that_changed_are_noted(kit: Kit) -> None:
    kit.released()
    kit.write("LICENSE", "MIT\n")
    again = kit.release()
    assert again.ok
    assert [f["rule"] for f in again.data["findings"]] == ["release/packed-before"]


# Policies, and datasets of other shapes.


def first_lines(folder: Path, number: int = 6) -> str:
    return "\n".join((folder / "README.md").read_text(encoding="utf-8").splitlines()[:number])


def test_a_lesser_policy_is_said_in_the_cards_first_lines(kit: Kit) -> None:
    kit.configure(require=("validate",))
    del kit.reports["seal"]
    kit.reports["selfcheck"].pop(TEXT)
    folder = kit.released()
    head = first_lines(folder)
    assert "doesn't require seal" in head
    assert "doesn't require selfcheck" in head
    assert "shown for 0 of 2 tasks" in head
    assert "shown for 1 of 2 tasks" in head
    lock = read_lock(folder)
    assert lock.policy.require == ("validate",)
    assert all("seal" not in task.evidence for task in lock.tasks)
    assert verify(folder).ok


def test_a_full_policy_needs_no_warning(kit: Kit) -> None:
    assert "doesn't" not in first_lines(kit.released())


def test_a_step_that_doesnt_apply_is_absent_and_said(kit: Kit) -> None:
    del kit.reports["seal"][TEXT]
    del kit.expected["seal"][TEXT]
    folder = kit.released()
    assert "seal doesn't apply to 1 of 2 tasks" in first_lines(folder)
    task = next(t for t in read_lock(folder).tasks if t.id == TEXT)
    assert task.evidence["seal"] is None
    assert verify(folder).ok


def test_plain_tasks_without_bases_are_released(kit: Kit) -> None:
    kit.configure(require=("validate",))
    for path in sorted(kit.path("bases").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    kit.path("bases").rmdir()
    kit.recipes.clear()
    for task in (ADDER, TEXT):
        kit.write(f"tasks/{task}/task.toml", 'version = "1.0"\n[environment]\ncpus = 1\n')
    done = kit.release()
    assert done.ok, done.summary
    folder = kit.path(done.data["folder"])
    lock = read_lock(folder)
    assert lock.bases == ()
    assert lock.harbor is None
    assert [f["rule"] for f in done.data["findings"]] == ["release/harbor-name"]
    assert f"{folder.name}/tasks/dataset.toml" not in members(folder)
    assert verify(folder).ok


def test_the_cards_licence_table_counts_tasks(kit: Kit) -> None:
    card = (kit.released() / "README.md").read_text(encoding="utf-8")
    assert "| https://example.org/acme/adder | Apache-2.0 | 1 |" in card
    assert "| https://example.org/acme/text | MIT | 1 |" in card
    assert "| selfcheck | the untouched checkout scores 0" in card


def test_foreign_text_cant_break_the_card(kit: Kit) -> None:
    kit.replace(f"tasks/{TEXT}/task.toml", "MIT", "a|b<script>\\nx")
    card = (kit.released() / "README.md").read_text(encoding="utf-8")
    assert "a\\|b&lt;script>\\nx" in card


def test_whose_verifier_a_task_has_is_told_by_its_bytes(kit: Kit) -> None:
    for name in release_step.shared_verifier().files:
        source = ROOT / "kbench_build" / "runtime" / Path(name).name
        kit.write(f"tasks/{ADDER}/{name}", source.read_bytes())
    folder = kit.released()
    assert {t.id: t.verifier for t in read_lock(folder).tasks} == {ADDER: "shared", TEXT: "own"}
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "1 of 2 tasks are graded by the shared verifier" in card
    assert verify(folder).ok


def test_tasks_that_harbor_cant_tell_apart_are_refused(kit: Kit) -> None:
    kit.replace(f"tasks/{TEXT}/task.toml", TEXT, ADDER)
    assert ADDER in one(kit.refusals(), "release/harbor-name").message


def test_legal_files_are_released_and_their_lookalikes_arent(kit: Kit) -> None:
    for name in ("LICENSE-MIT", "NOTICE.txt", "CITATION.cff", "LICENSES.py", "license"):
        kit.write(name, "x")
    kit.path("COPYING").symlink_to("/etc/passwd")
    found = {Path(name).name for name in members(kit.released()) if name.count("/") == 1}
    made = {"kbench.toml", "README.md"}
    assert found == made | {"LICENSE", "LICENSE-MIT", "NOTICE.txt", "CITATION.cff"}


# Harbor's dataset.toml.


def dataset_toml(folder: Path) -> dict[str, Any]:
    name = f"{folder.name}/tasks/dataset.toml"
    data = zstandard.ZstdDecompressor().stream_reader(
        (folder / f"{folder.name}.tar.zst").open("rb")
    )
    with tarfile.open(fileobj=data, mode="r|") as tar:
        for member in tar:
            if member.name == name:
                file = tar.extractfile(member)
                assert file is not None
                return tomllib.loads(file.read().decode())
    raise AssertionError(name)


def test_dataset_toml_lists_every_task_with_harbors_digest(kit: Kit) -> None:
    folder = kit.released()
    value = dataset_toml(folder)
    lock = read_lock(folder)
    assert value["dataset"] == {
        "name": "kotlin-bench/demo",
        "version": "1.0.0",
        "description": "Two tasks | for tests",
    }
    assert value["tasks"] == [{"name": t.harbor_name, "digest": t.harbor} for t in lock.tasks]


def test_a_hand_written_dataset_toml_is_kept_and_filled_in(kit: Kit) -> None:
    kit.write("tasks/metric.py", "print(1)\n")
    kit.write(
        "tasks/dataset.toml",
        '# ours\n[dataset]\nname = "acme/best"\n[[dataset.authors]]\nname = "A"\n'
        '[[files]]\npath = "metric.py"\n[[tasks]]\nname = "old/one"\ndigest = "x"\n',
    )
    value = dataset_toml(kit.released())
    assert value["dataset"]["name"] == "acme/best"
    assert value["dataset"]["authors"] == [{"name": "A"}]
    assert value["files"][0]["digest"].startswith("sha256:")
    assert len(value["tasks"]) == 2


def test_a_broken_dataset_toml_is_refused(kit: Kit) -> None:
    kit.write("tasks/dataset.toml", "[[files]]\npath = 'gone.py'\n")
    found = one(kit.refusals(), "release/dataset-toml")
    assert "'gone.py' isn't beside it" in found.message


# Interrupted writing.


def test_what_a_killed_run_left_is_cleared_away(kit: Kit) -> None:
    kit.write("dist/.demo-1.0.0.abc.partial/lock.json", "half")
    kit.released()
    assert [p.name for p in kit.path("dist").iterdir()] == ["demo-1.0.0"]


def test_a_file_that_changes_meanwhile_stops_the_release(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbench_build.rim import archive

    original = archive.ArchiveWriter.add_file

    def add(self: archive.ArchiveWriter, name: str, path: Path, mode: Any) -> archive.Member:
        if path.name == "instruction.md":
            path.write_text("edited while packing\n", encoding="utf-8")
        return original(self, name, path, mode)

    monkeypatch.setattr(archive.ArchiveWriter, "add_file", add)
    with pytest.raises(KbenchError, match=r"instruction\.md: changed while the release was made"):
        kit.release()
    assert list(kit.path("dist").iterdir()) == []


def listings(kit: Kit) -> dict[str, str]:
    tasks = [path for path in kit.path("tasks").iterdir() if path.is_dir()]
    return {f"tasks/{path.name}": listing(scan_tree(path)) for path in tasks}


def test_known_digests_give_the_same_release(kit: Kit, tmp_path: Path) -> None:
    other = make_kit(tmp_path / "other")
    with_known, without = kit.released(known=listings(kit)), other.released()
    assert snapshot(with_known) == snapshot(without)


def test_a_known_digest_that_isnt_the_files_stops_the_release(kit: Kit) -> None:
    known = listings(kit)
    kit.write(f"tasks/{ADDER}/solution/fix.patch", "another\n")
    with pytest.raises(KbenchError, match=r"fix\.patch: changed while the release was made"):
        kit.release(known=known)
    assert not list(kit.path("dist").glob("*"))


def test_an_interrupted_release_leaves_nothing(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(release_step, "lock_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kit.release()
    assert list(kit.path("dist").iterdir()) == []


# Too small for the documents, for the tarball, and for the lock after it.
@pytest.mark.parametrize("size", ["8k", "300k", "608k"])
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_leaves_nothing_half_written(kit: Kit, size: str) -> None:
    kit.write(f"tasks/{ADDER}/environment/big.bin", os.urandom(600_000))
    dist = kit.path("dist")
    dist.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(dist)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with pytest.raises(KbenchError, match=r"demo-1\.0\.0.*can't be written: No space left"):
            kit.release()
        assert list(dist.iterdir()) == []
    finally:
        subprocess.run(["umount", dist], check=True)


def test_inputs_move_with_everything_that_is_released(kit: Kit) -> None:
    def now() -> str:
        return release_step.inputs(open_dataset(kit.root), {"tasks": "t"}, kit.proof)

    first = now()
    assert now() == first
    kit.expected["seal"][ADDER] = "other"
    second = now()
    kit.configure("1.0.1")
    assert len({first, second, now()}) == 3


def test_errors_of_a_refusal_are_in_the_report(kit: Kit) -> None:
    del kit.reports["seal"][ADDER]
    refused = kit.release()
    assert errors_of(refused)
    assert refused.summary.startswith("demo-1.0.0 can't be released: seal was never run")
