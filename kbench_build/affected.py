"""Which subtasks a change touches: those whose inputs differ between a commit and the files now.

Two plans are made, of the dataset as it is and as the commit had it, and their inputs compared; so
a change counts for a step exactly where the step reads it. What hasn't been built counts by what it
is made from: no engine and no report is looked at.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.model import DATASET
from kbench_build.plan import Plan
from kbench_build.rim.config import CONFIG
from kbench_build.rim.dataset import BASES, TASKS
from kbench_build.rim.worktree import Worktree, lay_out
from kbench_build.rules.base_inputs import BaseInput
from kbench_build.rules.images import Recipe
from kbench_build.steps.validate import SOURCES

_READ = (CONFIG, BASES, TASKS)
_RULES = re.compile(r"kbench_build/runtime/.+|schemas/[^/]+\.schema\.json")
# What a shell would split or complete in an unquoted name, or `xargs` would take for a quote.
_SPECIAL = re.compile(r"[\s\0-\x1f\x7f*?\[\]\\'\"\ud800-\udfff]+")


@dataclass(frozen=True, kw_only=True)
class Subtask:
    """One subtask of the graph."""

    step: str
    subject: str

    @property
    def name(self) -> str:
        """Its name in doit."""
        return f"{self.step}:{self.subject}"

    @property
    def word(self) -> str:
        """A word that means it to doit and that a shell leaves alone: odd characters are `*`."""
        return _SPECIAL.sub("*", self.name)


@dataclass(frozen=True, kw_only=True)
class Affected:
    """What a change touches: the commit compared with, the paths that differ, the subtasks."""

    commit: str
    changed: frozenset[str]
    subtasks: tuple[Subtask, ...]


class Foreseen(Plan):
    """A plan in which what hasn't been built counts by what it is made from."""

    def made(self, item: BaseInput) -> str:
        """What the file is made from, in place of the file's digest."""
        return self.steps["base_inputs"].inputs(item.name)

    def image_id(self, task: str) -> str:
        """The recipe of the image, in place of the image's id."""
        return self.recipe(task).digest

    def holder(self, task: str) -> None:
        """None: who has a base commit is no part of a change, since its content is the same."""

    @cached_property
    def surroundings(self) -> str:
        """What all tasks' findings depend on, and where upstreams are looked for."""
        config = self.config
        return digest.of_json([super().surroundings, config.mirrors, config.fetch])

    def recipe(self, task: str) -> Recipe:
        """The recipe; one that lacks a base counts by the rest."""
        found = super().recipe(task)
        if found.digest:
            return found
        facts = self.survey.tasks[task]
        rest = [facts.parts["environment"], facts.parts["settings"], *found.stands_on]
        return replace(found, digest=digest.of_json(rest))


def affected(root: Path, revision: str, *, steps: Sequence[str], exact: bool = False) -> Affected:
    """What changed below `root` since HEAD left the revision (exact: since the revision).

    Subtasks are those of the steps given, in their order.
    """
    worktree = Worktree(root)
    commit = worktree.base(revision, exact=exact)
    changed = worktree.changed(commit)
    touched = _touched(worktree, commit, changed, steps) if _matters(changed) else ()
    return Affected(commit=commit, changed=changed, subtasks=tuple(touched))


def _matters(changed: Iterable[str]) -> bool:
    """Whether any path is read by a step; nothing need be surveyed for the others."""
    return any(path.split("/", 1)[0] in _READ or _is_of_rules(path) for path in changed)


def _is_of_rules(path: str) -> bool:
    """Whether a file decides what validation finds, in a repository that holds this project."""
    own = path.removeprefix("kbench_build/")
    return bool(_RULES.fullmatch(path)) or (own != path and own in SOURCES)


def _touched(
    worktree: Worktree, commit: str, changed: Collection[str], steps: Sequence[str]
) -> Iterator[Subtask]:
    now = _inputs(worktree.folder, steps)
    before = _inputs_before(worktree, commit, changed, steps)
    anew = any(map(_is_of_rules, changed))
    for subtask, inputs in now.items():
        if before.get(subtask) != inputs or (anew and subtask.step == "validate"):
            yield subtask


def _inputs(root: Path, steps: Sequence[str]) -> Mapping[Subtask, str]:
    """The digest of what each subtask reads. doit takes `a=b` for a variable, so none is that."""
    plan = Foreseen(root)
    return {
        Subtask(step=step, subject=subject): plan.steps[step].inputs(subject)
        for step in steps
        for subject in plan.steps[step].subjects()
        if "=" not in subject
    }


def _inputs_before(
    worktree: Worktree, commit: str, changed: Collection[str], steps: Sequence[str]
) -> Mapping[Subtask, str]:
    """The same as the commit had it; nothing where that was no dataset that could be read."""
    with TemporaryDirectory(prefix="kbench-before-") as name, suppress(KbenchError):
        into = Path(name)
        lay_out(worktree, commit, changed, folders=(BASES, TASKS), files=(CONFIG,), into=into)
        return _inputs(into, steps)
    return {}


def words(found: Affected, *, never_empty: bool = False) -> Sequence[str]:
    """What to say to doit. `never_empty`: the cheapest subtask, where a change touches nothing."""
    nothing = [f"validate:{DATASET}"] if never_empty else []
    return list(dict.fromkeys(subtask.word for subtask in found.subtasks)) or nothing
