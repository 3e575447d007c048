"""Look at a dataset once: which bases and tasks there are, and the digests that steps go by.

Promises: on an unchanged dataset no task's file is opened, only its stat values are read. What
can't be parsed is left out of the facts here; validation names it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.model import Base, FileEntry, Finding, TaskFacts, Upstream
from kbench_build.rim.dataset import BASES, TASKS, Dataset, open_dataset, read_fix, read_task_toml
from kbench_build.rim.task_files import read_text
from kbench_build.rim.tree import TreeIndex, listing
from kbench_build.rules.dockerfile import images, parse_dockerfile
from kbench_build.rules.manifest import parse_manifest
from kbench_build.rules.tables import table

_LARGEST = 1 << 20
_PARTS = ("instruction", "environment", "solution", "tests", "settings", "metadata")
# The tables of `task.toml` that tell people about a task; all others tell a runner what to do.
_ABOUT = frozenset({"metadata", "task", "schema_version", "version"})

# A task with none of these may check out the fixed commit and take the fix back.
_WITH_HIDDEN_TESTS = frozenset(
    {"tests/test.patch", "tests/expected_tests.json", "tests/verify.json"}
)


@dataclass(frozen=True, kw_only=True)
class BaseFolder:
    """One folder below `bases/`, paths relative to it, and the text of its `inputs.toml`."""

    files: tuple[FileEntry, ...]
    inputs: str


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A dataset as it is now. `findings` are those of the manifest; `folders` go by repository.

    `listings` has the files of each task, by the task's folder (see `rim.tree.files_of`), `traits`
    what tells each task from the others (see `rules.traits`).
    """

    dataset: Dataset
    bases: tuple[Base, ...]
    findings: tuple[Finding, ...]
    folders: Mapping[str, BaseFolder]
    tasks: Mapping[str, TaskFacts]
    listings: Mapping[str, str]
    traits: Mapping[str, str]


def survey(root: Path) -> Survey:
    """Look at the dataset at `root`. Raises `KbenchError` where it can't be looked at."""
    dataset = open_dataset(root)
    bases, findings = parse_manifest(dataset.manifest)
    index = TreeIndex(root)
    values = index.look([f"{TASKS}/{name}" for name in dataset.tasks], _describe_task)
    seen = {name: values[f"{TASKS}/{name}"] for name in dataset.tasks}
    tasks = {name: _task(name, value) for name, value in seen.items()}
    repos = [b.repo for b in bases if (root / b.context).is_dir()]
    bases_seen = index.look([f"{BASES}/{repo}" for repo in dict.fromkeys(repos)], _describe_base)
    folders = {name.removeprefix(f"{BASES}/"): _base(value) for name, value in bases_seen.items()}
    looked = {f"{TASKS}/{name}" for name in tasks} | {f"{BASES}/{repo}" for repo in folders}
    index.save(frozenset(looked))
    return Survey(
        dataset=dataset,
        bases=bases,
        findings=findings,
        folders=folders,
        tasks=tasks,
        listings={f"{TASKS}/{name}": value["files"] for name, value in seen.items()},
        traits={name: value["traits"] for name, value in seen.items()},
    )


def _base(value: Mapping[str, Any]) -> BaseFolder:
    files = tuple(FileEntry(**file) for file in value["files"])
    return BaseFolder(files=files, inputs=value["inputs"])


def _describe_base(folder: Path, files: tuple[FileEntry, ...]) -> Mapping[str, Any]:
    return {"files": [asdict(f) for f in files], "inputs": _text(folder / "inputs.toml")}


def _text(path: Path) -> str:
    """A file's text, empty where there is none of usual size."""
    return read_text(path, _LARGEST)


def _task(name: str, value: Mapping[str, Any]) -> TaskFacts:
    return TaskFacts(
        id=name,
        digest=value["digest"],
        parts=value["parts"],
        froms=tuple(value["froms"]),
        has_image=value["has_image"],
        base_commit=value["base_commit"],
        upstream=Upstream(**value["upstream"]),
        checked_out=value["checked_out"],
    )


def _describe_task(folder: Path, files: tuple[FileEntry, ...]) -> Mapping[str, Any]:
    # Only where something changed.
    from kbench_build.rules.recipes import SCRIPTS, checked_out, upstream_of  # noqa: PLC0415
    from kbench_build.rules.traits import traits_of  # noqa: PLC0415

    document, settings, about = _task_toml(folder)
    groups: dict[str, list[FileEntry]] = {part: [] for part in _PARTS}
    for file in files:
        groups[_part(file.path)].append(file)
    parts = {part: digest.of_tree(group) for part, group in groups.items()}
    parts["settings"] = settings
    parts["metadata"] = digest.of_parts({"files": parts["metadata"], "about": about})
    dockerfile = _text(folder / "environment" / "Dockerfile")
    paths = SCRIPTS if any(file.path in _WITH_HIDDEN_TESTS for file in files) else ()
    scripts = {path: _text(folder / path).encode("utf-8", "replace") for path in paths}
    return {
        "digest": digest.of_tree(files),
        "parts": parts,
        "froms": list(images(parse_dockerfile(dockerfile))),
        "has_image": bool(dockerfile or table(document, "environment").get("docker_image")),
        "base_commit": _base_commit(document),
        "upstream": asdict(upstream_of(document)),
        "checked_out": checked_out(document, scripts),
        "files": listing(files),
        "traits": traits_of(document, read_fix(folder.parent.parent, folder.name)).text,
    }


def _part(path: str) -> str:
    top = PurePosixPath(path).parts[0]
    if path == "instruction.md":
        return "instruction"
    if path == "task.toml":
        return "settings"
    return top if top in {"environment", "solution", "tests"} and top != path else "metadata"


def _task_toml(folder: Path) -> tuple[Mapping[str, Any], str, str]:
    """The document, and the digests of its settings and of what it says about the task."""
    try:
        document = read_task_toml(folder.parent.parent, folder.name)
    except KbenchError as error:
        return {}, digest.of_text(str(error)), ""
    about = {key: value for key, value in document.items() if key in _ABOUT}
    settings = {key: value for key, value in document.items() if key not in _ABOUT}
    return document, digest.of_json(_plain(settings)), digest.of_json(_plain(about))


def _base_commit(document: Mapping[str, Any]) -> str | None:
    commit = table(document, "metadata", "source").get("base_commit")
    return commit if isinstance(commit, str) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | bool | int | float) else str(value)
