"""Check a task, or the dataset around the tasks, without running anything of it.

Promises: everything wrong is reported at once; no content of a task makes it raise; suppressed
findings are listed with their reason. Leaves to the graph when to run, and to the release what a
finding of which severity forbids.

The checks are imported where they run: when all is up to date only digests are asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbench_build import digest, runtime
from kbench_build.errors import KbenchError
from kbench_build.model import DATASET, Base, FileEntry, Finding, FolderEntry, Report, Suppression
from kbench_build.rim import schemas
from kbench_build.rim.config import Config
from kbench_build.rim.dataset import TASKS, Dataset, read_fix, read_task_toml
from kbench_build.rim.tree import ignored, scan_tree

if TYPE_CHECKING:
    from kbench_build.rim.upstream import BaseCommit, Holder
    from kbench_build.rules.base_inputs import BaseInput
    from kbench_build.rules.content import Around, Content
    from kbench_build.rules.on_base import OnBase
    from kbench_build.rules.parsing import Flaw
    from kbench_build.rules.traits import Traits

STEP = "validate"
TEST_PATCH = "tests/test.patch"
_ELSEWHERE = frozenset(
    {"manifest/line", "manifest/unterminated", "bases/inputs"}
    | {"tests/unstable", "tests/unguarded-hunk", "tests/passes-without-fix", "suppress/unused"}
    | {"verifier/sabotage"}
    | {f"leak/{kind}" for kind in ("file", "lines", "compiled", "repository", "pack")}
)
_AFTER = frozenset(r for r in _ELSEWHERE if r.startswith(("tests/", "verifier/", "leak/")))
_MOST_BYTES = 1 << 20
_SCHEMAS = ("task", "expected_tests", "verify", "quarantine")
# What decides which findings there are. A change elsewhere keeps every report.
SOURCES = (
    "rim/git.py",
    "rim/process.py",
    "rim/schemas.py",
    "rim/task_files.py",
    "rim/upstream.py",
    "rules/added_tests.py",
    "rules/base_inputs.py",
    "rules/build_context.py",
    "rules/build_lines.py",
    "rules/catalogue.py",
    "rules/compose.py",
    "rules/content.py",
    "rules/dataset_checks.py",
    "rules/dockerfile.py",
    "rules/documents.py",
    "rules/duplicates.py",
    "rules/expected.py",
    "rules/expected_ids.py",
    "rules/expected_tests.py",
    "rules/expected_worth.py",
    "rules/findings.py",
    "rules/fix_references.py",
    "rules/fixed_clone.py",
    "rules/foreign_verifier.py",
    "rules/hidden_tests.py",
    "rules/images.py",
    "rules/layout.py",
    "rules/manifest.py",
    "rules/names.py",
    "rules/network.py",
    "rules/on_base.py",
    "rules/once.py",
    "rules/origin.py",
    "rules/parsing.py",
    "rules/patch_checks.py",
    "rules/patches.py",
    "rules/provenance.py",
    "rules/quarantine.py",
    "rules/recipe_trust.py",
    "rules/recipes.py",
    "rules/renames.py",
    "rules/shell.py",
    "rules/shell_steps.py",
    "rules/shipped.py",
    "rules/statement.py",
    "rules/tables.py",
    "rules/task_toml.py",
    "rules/test_commands.py",
    "rules/traits.py",
    "rules/verifier.py",
    "rules/yaml_nodes.py",
    "steps/validate.py",
)


def surroundings(
    *, bases: Iterable[Base], config: Config, recipes: Mapping[str, str] | None = None
) -> str:
    """Digest of what all tasks' findings depend on beside the task; computed once a run.

    `recipes` are the digests of the bases' Dockerfiles, by their path.
    """
    names = sorted(base.name for base in bases)
    known = [names, config.namespace, _answered(config), rules_version()]
    return digest.of_json([*known, dict(recipes or {})])


@cache
def rules_version() -> str:
    """Digest of the checks' sources, their schemas, and the files that every task must hold."""
    package = Path(str(runtime.__file__)).parent.parent
    files = [package / source for source in SOURCES]
    files += [schemas.path_of(name) for name in _SCHEMAS]
    files += [f for f in (package / "runtime").iterdir() if f.is_file()]
    parts = {f"{f.parent.name}/{f.name}": digest.of_bytes(f.read_bytes()) for f in files}
    return digest.of_parts(parts)


def inputs(*, tree: str, surroundings: str, holder: str = "") -> str:
    """Digest of all that `validate_task` reads; `tree` is the digest of the task's tree.

    `holder` names who has the base commit, whose content is always the same.
    """
    return digest.of_text(f"{tree} {surroundings} {holder}")


def dataset_inputs(
    *, traits: Mapping[str, str], folders: Mapping[str, str], manifest: str, surroundings: str
) -> str:
    """Digest of all that `validate_dataset` reads; `folders` are digests, by base repository.

    `traits` go by task (see `rules.traits`).
    """
    told = digest.of_text("\n".join(f"{task} {text}" for task, text in sorted(traits.items())))
    return digest.of_json([told, dict(folders), manifest, surroundings])


def _answered(config: Config) -> list[list[str]]:
    return [[s.rule, s.task, s.reason] for s in config.suppress]


def validate(
    subject: str,
    *,
    dataset: Dataset,
    bases: tuple[Base, ...],
    inputs: str = "",
    holder: Holder | None = None,
    traits: Mapping[str, str] | None = None,
) -> Report:
    """Check a task, or with the subject `DATASET` what belongs to no single one."""
    if subject != DATASET:
        return validate_task(
            dataset.root,
            subject,
            config=dataset.config,
            bases=bases,
            inputs=inputs,
            holder=holder,
        )
    return validate_dataset(
        dataset.root,
        tasks=dataset.tasks,
        manifest=dataset.manifest,
        config=dataset.config,
        inputs=inputs,
        traits=traits,
    )


def validate_task(
    root: Path,
    task: str,
    *,
    config: Config,
    bases: tuple[Base, ...],
    inputs: str,
    holder: Holder | None = None,
) -> Report:
    """Check one task. `bases` are those of the manifest, `inputs` what `inputs()` gave.

    `holder` says where the base commit is to be had; where it isn't given, it is looked for.
    """
    from kbench_build.rules.catalogue import check_task, not_checked  # noqa: PLC0415 - see above
    from kbench_build.rules.content import Around  # noqa: PLC0415
    from kbench_build.rules.on_base import check_on_base  # noqa: PLC0415

    began = time.monotonic()
    around = Around(
        namespace=config.namespace,
        bases=bases,
        shipped=shipped(),
        recipes=_recipes(root, task, bases),
    )
    known = read_task(root, task, around)
    known, base, untried = _at_base(root, known, holder or _holder(root, known, config))
    about = {"form": known.form, "not_checked": [*not_checked(known), *untried]}
    return _report(
        subject=task,
        inputs=inputs,
        began=began,
        findings=(*check_task(known), *(check_on_base(base) if base else ())),
        suppressions=config.suppress,
        about=about,
        unasked=_unasked(task=True, base=base is not None),
    )


def _recipes(root: Path, task: str, bases: tuple[Base, ...]) -> Mapping[str, str]:
    """The bases' Dockerfiles, for a task that seems to hold a copy of one; else none is read."""
    try:
        names = os.listdir(root / TASKS / task / "environment")  # noqa: PTH208 - a fifth of the time
    except OSError:
        return {}
    copies = (name for name in names if "dockerfile" in name.lower())
    if not set(copies) - {"Dockerfile", "Dockerfile.dockerignore"}:
        return {}
    texts = {base.dockerfile: _text(root / base.dockerfile) for base in bases}
    return {path: text for path, text in texts.items() if text is not None}


@cache
def _unasked(*, task: bool, base: bool) -> frozenset[str]:
    """The rules that aren't asked about a subject: a task, or else the dataset as a whole.

    `base` says whether its base commit was at hand.
    """
    from kbench_build.rules.catalogue import BASE_CHECKS, TASK_CHECKS  # noqa: PLC0415

    # The statement's checks are sharper with the base commit, and so find less there.
    of_task = frozenset(check.id for check in TASK_CHECKS)
    of_task |= {check.id for check in BASE_CHECKS} if base else set()
    return rule_ids() - of_task if task else of_task | _AFTER


def _holder(root: Path, task: Content, config: Config) -> Holder:
    """Where the base commit of a task is to be had, by what the task itself says."""
    from kbench_build.rim.upstream import Want, bundles, holders  # noqa: PLC0415
    from kbench_build.rules.dockerfile import images  # noqa: PLC0415
    from kbench_build.rules.images import base_image  # noqa: PLC0415
    from kbench_build.rules.recipes import SCRIPTS, checked_out, upstream_of  # noqa: PLC0415

    froms = images(task.dockerfile or ())
    repos = {b.repo for b in task.around.bases if base_image(config.namespace, b) in froms}
    # A plain task may check out the fixed commit and take the fix back.
    paths = () if task.form == "plain" else SCRIPTS
    want = Want(
        task=task.id,
        commit=checked_out(task.config, {path: task.data.get(path, b"") for path in paths}),
        upstream=upstream_of(task.config),
        bundles=bundles(root, sorted(repos)),
    )
    return holders(root, [want], mirrors=config.mirrors, fetch=config.fetch)[task.id]


def _at_base(
    root: Path, task: Content, holder: Holder
) -> tuple[Content, OnBase | None, tuple[str, ...]]:
    """The task with what the base commit shows of it, the facts there, and what wasn't tried."""
    from kbench_build.rim.process import ProcessError  # noqa: PLC0415
    from kbench_build.rim.upstream import opened  # noqa: PLC0415
    from kbench_build.rules import on_base  # noqa: PLC0415

    patches = on_base.patches_to_try(task)
    untried = tuple(on_base.untried(task, patches))
    if not patches or not holder.name:
        said = on_base.without_upstream(task, commit=holder.commit, problem=holder.problem)
        return task, None, (*untried, *said)
    try:
        with opened(root, holder) as base:
            if base is None:
                problem = f"{holder.name} doesn't hold the base commit"
            elif base.lacks(on_base.needed(task, base.files())):
                problem = f"{holder.name} is a partial clone, which lacks files of the base commit"
            else:
                known = _known_at(base, task)
                return known, _on_base(base, task, patches), untried
    except ProcessError as error:
        problem = f"{holder.name}: the base commit can't be read whole (git {error.argv[2]})"
    said = on_base.without_upstream(task, commit=holder.commit, problem=problem)
    return task, None, (*untried, *said)


def _known_at(base: BaseCommit, task: Content) -> Content:
    """The task, with those of the names and ids that it asks for which the repository knows."""
    from kbench_build.rules import on_base, statement  # noqa: PLC0415

    names, ids = on_base.names_to_look_for(task), statement.ids_said(task)
    texts = base.contents(on_base.sources(base.files())) if names else {}
    known = on_base.names_among(names, texts.values())
    return replace(task, at_base=known, later=base.beyond(ids) if ids else frozenset())


def _on_base(base: BaseCommit, task: Content, patches: Mapping[str, bytes]) -> OnBase:
    """The facts about a task's patches on its base commit."""
    from kbench_build.rules import on_base  # noqa: PLC0415

    files, several = base.files(), len(patches) > 1
    others = {path: [p for name, p in patches.items() if name != path] for path in patches}
    return on_base.OnBase(
        task=task,
        commit=base.commit,
        files=files,
        alone={path: base.apply(patch) for path, patch in patches.items()},
        after_other={p: base.apply(*others[p], patches[p]) for p in patches if several},
        blocked=_blocked(base, task, patches, files),
    )


def _blocked(
    base: BaseCommit,
    task: Content,
    patches: Mapping[str, bytes],
    files: Mapping[str, tuple[str, str]],
) -> frozenset[str]:
    """The files whose hidden change doesn't apply once each class has a test more at its end."""
    from kbench_build.rules import on_base  # noqa: PLC0415

    tested = on_base.tested_files(task, files)
    if TEST_PATCH not in patches or not tested or not on_base.is_applied_to_the_checkout(task):
        return frozenset()
    texts = base.contents(tested.values())
    made = {path: on_base.with_own_test(path, texts.get(i, b"")) for path, i in tested.items()}
    changed = {path: text for path, text in made.items() if text is not None}
    if not changed or base.apply(patches[TEST_PATCH]).reason:
        return frozenset()
    said = base.apply(patches[TEST_PATCH], instead=changed).said
    return on_base.refused(said, changed)


def read_task(root: Path, task: str, around: Around) -> Content:
    """Read a task and hold its documents against their schemas."""
    from kbench_build.rim.task_files import list_folder, read_files  # noqa: PLC0415
    from kbench_build.rules import content  # noqa: PLC0415

    folder = root / TASKS / task
    # A link in a folder's place would be read from wherever it leads.
    entries = () if folder.is_symlink() else list_folder(folder)
    data, reasons = read_files(folder, entries, content.limit)
    if folder.is_symlink():
        reasons = {"": "is a link where the task's own folder should be"}
    files = {entry.path: entry for entry in entries if not entry.error}
    if content.form_of(files, data, around) == "plain":
        tests, _ = read_files(folder, content.test_files(files), lambda _: content.MIB)
        data = {**tests, **data}
    found = content.understand(
        task,
        around=around,
        files=files,
        data=data,
        unread=_unread(entries, reasons),
    )
    return content.with_schemas(found, misfits=misfits(found), unknown=unknown(found))


def _unread(entries: tuple[FolderEntry, ...], reasons: Mapping[str, str]) -> tuple[Flaw, ...]:
    from kbench_build.rules.parsing import Flaw  # noqa: PLC0415

    broken = {e.path: f"can't be read: {e.error}" for e in entries if e.error}
    return tuple(Flaw(file=p, message=m) for p, m in sorted({**broken, **reasons}.items()))


def misfits(task: Content) -> tuple[Flaw, ...]:
    """What doesn't fit its schema in the task's documents."""
    from kbench_build.rules.parsing import Flaw  # noqa: PLC0415

    return tuple(
        Flaw(file=path, where=where, message=message)
        for path, schema, value in task.documents
        for where, message in schemas.problems(schema, value)
    )


def unknown(task: Content) -> tuple[Flaw, ...]:
    """The keys in the task's documents that no schema names."""
    from kbench_build.rules.documents import unknown_keys  # noqa: PLC0415
    from kbench_build.rules.parsing import Flaw  # noqa: PLC0415

    return tuple(
        Flaw(file=path, where=where, message=message)
        for path, schema, value in task.documents
        for where, message in unknown_keys(schemas.load(schema), value)
    )


@cache
def shipped() -> Mapping[str, bytes]:
    """The files that are the same in every task: place in the task → content."""
    from kbench_build.rules.shipped import SHIPPED  # noqa: PLC0415

    folder = Path(str(runtime.__file__)).parent
    return {place: (folder / name).read_bytes() for place, name in SHIPPED.items()}


def validate_dataset(
    root: Path,
    *,
    tasks: tuple[str, ...],
    manifest: str,
    config: Config,
    inputs: str,
    traits: Mapping[str, str] | None = None,
) -> Report:
    """Check what belongs to no single task: manifest, bases, ids, what lies beside the tasks.

    `traits` tell the tasks apart; where they aren't given, they are read from the tasks.
    """
    from kbench_build.rules.dataset_checks import Whole, check_dataset  # noqa: PLC0415
    from kbench_build.rules.manifest import parse_manifest  # noqa: PLC0415
    from kbench_build.rules.traits import from_text  # noqa: PLC0415

    began = time.monotonic()
    bases, wrong = parse_manifest(manifest)
    repos = tuple(dict.fromkeys(base.repo for base in bases))
    made = {repo: _inputs_of(root, repo) for repo in repos}
    whole = Whole(
        tasks=tasks,
        strays=_strays(root, tasks),
        namespace=config.namespace,
        bases=bases,
        folders={repo: _files(root / "bases" / repo) for repo in repos},
        texts={repo: _texts(root, repo, bases) for repo in repos},
        inputs={repo: items for repo, (items, _) in made.items()},
        suppress=config.suppress,
        rules=rule_ids(),
        traits={task: from_text(text) for task, text in traits.items()}
        if traits is not None
        else {task: _traits(root, task) for task in tasks},
    )
    found = [*wrong, *(f for _, findings in made.values() for f in findings)]
    about = {"tasks": len(tasks), "bases": len(bases)}
    return _report(
        subject=DATASET,
        inputs=inputs,
        began=began,
        findings=(*found, *check_dataset(whole)),
        suppressions=config.suppress,
        about=about,
        unasked=_unasked(task=False, base=False),
    )


def _traits(root: Path, task: str) -> Traits:
    from kbench_build.rules.traits import traits_of  # noqa: PLC0415

    try:
        document = read_task_toml(root, task)
    except KbenchError:
        document = {}
    return traits_of(document, read_fix(root, task))


@cache
def rule_ids() -> frozenset[str]:
    """The ids of all rules."""
    from kbench_build.rules.catalogue import BASE_CHECKS, TASK_CHECKS  # noqa: PLC0415
    from kbench_build.rules.dataset_checks import DATASET_CHECKS  # noqa: PLC0415

    checks = {check.id for check in TASK_CHECKS} | {check.id for check in BASE_CHECKS}
    checks |= {check.id for check in DATASET_CHECKS}
    return frozenset(checks) | _ELSEWHERE


def _strays(root: Path, tasks: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        sorted(
            p.name for p in (root / TASKS).iterdir() if p.name not in tasks and not ignored(p.name)
        )
    )


def _files(folder: Path) -> tuple[FileEntry, ...]:
    return scan_tree(folder) if folder.is_dir() else ()


def _inputs_of(root: Path, repo: str) -> tuple[tuple[BaseInput, ...], tuple[Finding, ...]]:
    from kbench_build.rim.task_files import read_whole  # noqa: PLC0415
    from kbench_build.rules.base_inputs import (  # noqa: PLC0415
        inputs_file,
        parse_inputs,
        unread_inputs,
    )

    name = inputs_file(repo)
    try:
        text = read_whole(root / name, name, _MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return (), ()
    except KbenchError as error:
        return (), (unread_inputs(repo, str(error).removeprefix(f"{name}: ")),)
    return parse_inputs(text, repo)


def _texts(root: Path, repo: str, bases: tuple[Base, ...]) -> Mapping[str, str]:
    names = {b.dockerfile.removeprefix(f"{b.context}/") for b in bases if b.repo == repo}
    scripts = (path.name for path in sorted((root / "bases" / repo).glob("*.sh")))
    names |= {".dockerignore", *scripts}
    texts = {name: _text(root / "bases" / repo / name) for name in sorted(names)}
    return {name: text for name, text in texts.items() if text is not None}


def _text(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _report(
    *,
    subject: str,
    inputs: str,
    began: float,
    findings: Iterable[Finding],
    suppressions: tuple[Suppression, ...],
    about: Mapping[str, Any],
    unasked: frozenset[str],
) -> Report:
    from kbench_build.rules.findings import (  # noqa: PLC0415
        idle,
        in_order,
        summary,
        suppress,
        to_json,
    )

    kept, answered = suppress(in_order(findings), subject, suppressions)
    used = [(subject, each.finding) for each in answered]
    kept += tuple(idle(suppressions, used, meant=subject.__eq__, unasked=unasked))
    return Report(
        step=STEP,
        subject=subject,
        inputs=inputs,
        ok=not any(finding.severity == "error" for finding in kept),
        summary=summary(kept, len(answered)),
        seconds=time.monotonic() - began,
        data={
            **about,
            "findings": [to_json(finding) for finding in kept],
            "suppressed": [{**to_json(a.finding), "reason": a.reason} for a in answered],
        },
    )


def after_all(reports: Sequence[Report], suppressions: Sequence[Suppression]) -> Iterator[Report]:
    """The reports of a whole dataset, with what only all of them together tell.

    That is which suppressions for several tasks answer for nothing in any of them.
    """
    from kbench_build.rules.catalogue import BASE_CHECKS  # noqa: PLC0415
    from kbench_build.rules.findings import from_json, idle, summary, to_json  # noqa: PLC0415

    answered = [
        (report.subject, from_json({k: v for k, v in value.items() if k != "reason"}))
        for report in reports
        for value in report.data["suppressed"]
    ]
    unasked = {check.id for check in BASE_CHECKS} | _AFTER
    found = tuple(idle(suppressions, answered, meant=_is_pattern, unasked=unasked))
    for report in reports:
        if report.subject != DATASET or not found:
            yield report
            continue
        listed = (*findings_of(report), *found)
        data = {**report.data, "findings": [to_json(finding) for finding in listed]}
        said = summary(listed, len(report.data["suppressed"]))
        yield replace(report, summary=said, data=data)


def _is_pattern(task: str) -> bool:
    return bool(set("*?[") & set(task))


def findings_of(report: Report) -> tuple[Finding, ...]:
    """The findings that a report of this step holds, in order; suppressed ones left out."""
    from kbench_build.rules.findings import from_json  # noqa: PLC0415

    return tuple(from_json(value) for value in report.data.get("findings", ()))
