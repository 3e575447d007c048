"""The draft of a release: its lock, as far as it is known before the tarball exists.

Promises: pure, from the dataset's files, what its `task.toml` files say and what was proved.
Harbor's digests, the tarball's and the documents' are filled in by `finished`, once there are any.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kbench_build.model import Base, FileEntry, Report
from kbench_build.rules.about_task import AboutTask
from kbench_build.rules.images import Recipe, base_image, normal_reference, task_image
from kbench_build.rules.lock import (
    Archive,
    Evidence,
    Lock,
    LockedBase,
    LockedTask,
    Policy,
    Previous,
    SuppressedFinding,
    Verifier,
    content_of,
    digests_of,
    evidence_of,
    with_verifier,
)

# Steps whose reports go into the lock, by what they are about.
OF_TASKS = ("validate", "build_images", "seal", "selfcheck")
OF_BASES = ("build_bases",)

_NO_ARCHIVE = Archive(
    file="", size=0, blake3="", sha256="", tar="", tar_size=0, format="", compression="", zstd=""
)


@dataclass(frozen=True, kw_only=True)
class Title:
    """What a release calls itself, and the policy it was made under."""

    tool: str
    name: str
    version: str
    namespace: str
    description: str
    policy: Policy


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the graph knows when a release is due.

    `reports` are by step and subject (a task's id, a base's `repo:tag`, or any other name for the
    dataset as a whole). `expected` holds, for every step and every subject that the step applies
    to, the digest of its inputs as they are now: a report with another one is stale, and a step
    doesn't apply to a task that isn't there. `recipes` are those of all bases and tasks.
    """

    bases: tuple[Base, ...]
    recipes: tuple[Recipe, ...]
    reports: Mapping[str, Mapping[str, Report]]
    expected: Mapping[str, Mapping[str, str]]


def draft_lock(
    title: Title,
    proof: Proof,
    *,
    files: tuple[FileEntry, ...],
    about: Mapping[str, AboutTask],
    verifier: Verifier,
    schemas: Mapping[str, str],
) -> Lock:
    """The lock before there is a tarball. `files` are the dataset's, `about` is by task id."""
    tasks, bases = digests_of(files, proof.bases, about)
    return Lock(
        tool=title.tool,
        name=title.name,
        version=title.version,
        namespace=title.namespace,
        description=title.description,
        content=content_of(tasks, bases, {b.name: b.dockerfile for b in proof.bases}),
        policy=title.policy,
        archive=_NO_ARCHIVE,
        harbor=None,
        verifier=verifier,
        schemas=schemas,
        documents={},
        previous=None,
        bases=tuple(_base(b, bases[b.name], title, proof) for b in _by_name(proof.bases)),
        tasks=_tasks(title, proof, files=files, about=about, verifier=verifier, digests=tasks),
        evidence=_about_dataset(proof, frozenset(about)),
        suppressed=_suppressed(proof),
        files=files,
    )


def finished(
    draft: Lock,
    *,
    archive: Archive,
    files: tuple[FileEntry, ...],
    harbor: str | None,
    harbor_tasks: Mapping[str, str],
    documents: Mapping[str, str],
    previous: Previous | None,
) -> Lock:
    """The lock of the release: the draft, with what is known once the tarball is written.

    `files` are all members, `harbor_tasks` Harbor's digests by task id.
    """
    return replace(
        draft,
        archive=archive,
        files=files,
        harbor=harbor,
        documents=documents,
        previous=previous,
        tasks=tuple(replace(t, harbor=harbor_tasks[t.id]) for t in draft.tasks),
    )


def _by_name(bases: Iterable[Base]) -> list[Base]:
    return sorted(bases, key=lambda b: b.name)


def _base(base: Base, value: str, title: Title, proof: Proof) -> LockedBase:
    image = base_image(title.namespace, base)
    recipe = _recipe(image, proof)
    return LockedBase(
        name=base.name,
        dockerfile=base.dockerfile,
        digest=value,
        image=image,
        recipe=recipe.digest if recipe else "",
        parents=_base_names(recipe, title, proof),
        evidence=_evidence(base.name, OF_BASES, (), proof),
    )


def _tasks(
    title: Title,
    proof: Proof,
    *,
    files: tuple[FileEntry, ...],
    about: Mapping[str, AboutTask],
    verifier: Verifier,
    digests: Mapping[str, str],
) -> tuple[LockedTask, ...]:
    shared = with_verifier(files, verifier)
    recipes = {r.image: r for r in proof.recipes}
    found = []
    for task, facts in sorted(about.items()):
        recipe = recipes.get(task_image(title.namespace, task))
        found.append(
            LockedTask(
                id=task,
                digest=digests[task],
                harbor="",
                harbor_name=facts.harbor_name,
                bases=_base_names(recipe, title, proof),
                image=recipe.image if recipe else "",
                recipe=recipe.digest if recipe else "",
                settings=facts.settings,
                verifier="shared" if task in shared else "own",
                license=facts.license,
                source=facts.source,
                change=facts.change,
                base_commit=facts.base_commit,
                evidence=_evidence(task, OF_TASKS, title.policy.require, proof),
            )
        )
    return tuple(found)


def _recipe(image: str, proof: Proof) -> Recipe | None:
    return next((r for r in proof.recipes if r.image == image), None)


def _base_names(recipe: Recipe | None, title: Title, proof: Proof) -> tuple[str, ...]:
    """The names of the bases that an image is made from."""
    if recipe is None:
        return ()
    names = {normal_reference(base_image(title.namespace, b)): b.name for b in proof.bases}
    found = {names.get(normal_reference(image)) for image in recipe.stands_on}
    return tuple(sorted(name for name in found if name))


def _evidence(
    subject: str, steps: Iterable[str], require: Iterable[str], proof: Proof
) -> dict[str, Evidence | None]:
    """What the steps say of a subject. A stale report says nothing; None: the step is required but
    doesn't apply.
    """
    found: dict[str, Evidence | None] = {}
    for step in steps:
        report = proof.reports.get(step, {}).get(subject)
        inputs = proof.expected.get(step, {}).get(subject)
        if report is not None and report.inputs == inputs:
            found[step] = evidence_of(report)
        elif inputs is None and step in require:
            found[step] = None
    return found


def _about_dataset(proof: Proof, tasks: frozenset[str]) -> dict[str, Evidence | None]:
    """Evidence of steps about subjects that are no task: the dataset as a whole."""
    return {
        f"{step}/{subject}": evidence
        for step in OF_TASKS
        for subject in sorted(proof.expected.get(step, {}).keys() - tasks)
        for evidence in _evidence(subject, [step], (), proof).values()
    }


def _suppressed(proof: Proof) -> tuple[SuppressedFinding, ...]:
    reports = proof.reports.get("validate", {})
    fresh = [
        report
        for subject, inputs in proof.expected.get("validate", {}).items()
        if (report := reports.get(subject)) and report.inputs == inputs
    ]
    found = [
        _suppressed_finding(item) for report in fresh for item in report.data.get("suppressed", ())
    ]
    return tuple(sorted(found, key=lambda s: (s.file, s.rule, s.message)))


def _suppressed_finding(item: Mapping[str, Any]) -> SuppressedFinding:
    value = item.get("finding", item)
    return SuppressedFinding(
        rule=str(value["rule"]),
        file=str(value["file"]),
        message=str(value["message"]),
        reason=str(item["reason"]),
    )
