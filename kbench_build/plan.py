"""What each step reads, makes and leaves, for each of its subjects; without doit.

A `Plan` joins a survey of the dataset, the reports and an engine: its table of steps says which
subjects a step has, the digest that a report must name now, and how to do it. It doesn't know the
order of work: that is the graph's.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kbench_build.digest import of_tree
from kbench_build.errors import EngineError, KbenchError
from kbench_build.model import DATASET, Base, Report, Upstream
from kbench_build.rim.dataset import BASES, TASKS
from kbench_build.rim.store import STATE, ReportHead, Store
from kbench_build.rim.task_files import read_text
from kbench_build.rules.base_inputs import BaseInput, identity, made_from, parse_inputs
from kbench_build.rules.build_context import sources
from kbench_build.rules.dockerfile import images, parse_dockerfile
from kbench_build.rules.images import (
    BaseSource,
    Recipe,
    base_image,
    base_recipes,
    is_held,
    missing_bases,
    task_recipe,
)
from kbench_build.rules.step_inputs import (
    SUPPRESSED,
    probe_inputs,
    sabotage_inputs,
    seal_inputs,
    selfcheck_inputs,
)
from kbench_build.steps.base_inputs import place
from kbench_build.steps.survey import Survey, survey

if TYPE_CHECKING:
    from kbench_build.rim.engines import ContainerEngine, HeldImage
    from kbench_build.rim.upstream import Holder
    from kbench_build.rules.draft import Proof
    from kbench_build.steps.selfcheck import Grader

# How many parts of a gold patch a probe leaves out one after the other, where nobody says.
MOST_PARTS = 40
_LARGEST_RECIPE = 1 << 20
_EVIDENCE = ("validate", "build_bases", "build_images", "seal", "selfcheck")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: its subjects now, the digest of what it reads of one, and how to do it.

    `intact` says whether what it made, which the report's head names, is still there.
    """

    subjects: Callable[[], Sequence[str]]
    inputs: Callable[[str], str]
    run: Callable[[str], Report]
    intact: Callable[[str, ReportHead], bool] = lambda _, __: True


class Plan:
    """The steps of one dataset, as it was when the plan was made."""

    def __init__(self, root: Path, *, rebuild: bool = False, runs: int = 0) -> None:
        """Survey the dataset. `rebuild` forces images, `runs` repeats selfchecks (0: as set)."""
        self.root = root
        self.store = Store(root)
        self.survey: Survey = survey(root)
        self.config = self.survey.dataset.config
        self.rebuild = rebuild
        self.runs = runs or self.config.runs
        self.most_parts = MOST_PARTS
        self._engines: dict[int, ContainerEngine] = {}
        self._asking: threading.Thread | None = None
        self._held: Mapping[str, HeldImage] | None = None
        self._image_ids: dict[str, str] = {}
        self._bundles_of: dict[tuple[str, ...], tuple[Path, ...]] = {}
        self._history_of: dict[tuple[str, ...], Sequence[str]] = {}
        self._made_inputs = f"{root}/{STATE}/inputs"
        self._holders: dict[str, Holder] = {}
        self._recipes: tuple[Mapping[str, str], Mapping[str, Recipe]] | None = None
        self._task_recipes = _TaskRecipes(bases={})
        self.steps: Mapping[str, Step] = {
            "validate": Step(
                subjects=lambda: [DATASET, *self.survey.tasks],
                inputs=self._validate_inputs,
                run=self._validate,
            ),
            "base_inputs": Step(
                subjects=lambda: list(self.base_inputs),
                inputs=self._made_from,
                run=self._make_input,
                intact=lambda name, _: place(self.root, self.base_inputs[name]).is_file(),
            ),
            "build_bases": Step(
                subjects=lambda: list(self.recipes),
                inputs=lambda base: self.recipes[base].digest,
                run=self._build_base,
                intact=lambda base, head: self._holds_image(self.recipes[base], head),
            ),
            "build_images": Step(
                subjects=self._built,
                inputs=lambda task: self.recipe(task).digest,
                run=self._build_image,
                intact=self._holds_task_image,
            ),
            "seal": Step(subjects=self._built, inputs=self._seal_inputs, run=self._seal),
            "selfcheck": Step(
                subjects=self._built,
                inputs=self._selfcheck_inputs,
                run=self._selfcheck,
                intact=lambda task, head: (
                    self._is_answered_for("selfcheck", task, head)
                    and (self.runs <= 1 or self._repeated(task))
                ),
            ),
            "probe": Step(
                subjects=self._built,
                inputs=self._probe_inputs,
                run=self._probe,
                intact=lambda task, head: (
                    self._is_answered_for("probe", task, head) and self._probed(task)
                ),
            ),
            "sabotage": Step(
                subjects=self._foreign,
                inputs=self._sabotage_inputs,
                run=self._sabotage,
                intact=lambda task, head: self._is_answered_for("sabotage", task, head),
            ),
            "release": Step(
                subjects=lambda: [DATASET],
                inputs=self._release_inputs,
                run=self._release,
                intact=lambda _, __: self._release_is_there(),
            ),
            "verify": Step(
                subjects=self.release_names, inputs=self._verify_inputs, run=self._verify
            ),
        }

    def holds(self, step: str, subject: str) -> bool:
        """Whether the subject passed, with the inputs of now, and what was made is still there."""
        head = self.store.head(step, subject)
        planned = self.steps[step]
        return (
            head is not None
            and head.ok
            and head.inputs == planned.inputs(subject)
            and planned.intact(subject, head)
        )

    def _is_answered_for(self, step: str, subject: str, head: ReportHead) -> bool:
        """Whether kbench.toml still answers for what the report let be, if it did."""
        if not head.summary.endswith(SUPPRESSED):
            return True
        from kbench_build.rules.findings import still_answered  # noqa: PLC0415

        report = self.store.read(step, subject)
        suppressed = report.data.get("suppressed", ()) if report else ()
        return still_answered(suppressed, subject, self.config.suppress)

    def run(self, step: str, subject: str) -> Report:
        """Do the step, whether or not its report holds. Keeps the report and returns it."""
        report = self.steps[step].run(subject)
        self.store.write(report)
        return report

    def _built(self) -> Sequence[str]:
        return [task.id for task in self.survey.tasks.values() if task.has_image]

    # The engine: connected once a process, asked for its images once a run.

    @property
    def engine(self) -> "ContainerEngine":
        """The engine of this process; a connection doesn't survive a fork."""
        pid = os.getpid()
        if pid not in self._engines:
            from kbench_build.rim.engines import connect  # noqa: PLC0415 - only when needed

            self._engines[pid] = connect(self.config.engine)
        return self._engines[pid]

    def ask_early(self) -> None:
        """Begin to ask the engine for its images: thousands take it a while to list."""

        def ask() -> None:
            # Who needs the answer and finds none asks again, and is told what is wrong.
            with suppress(EngineError):
                self._held = self.engine.images()

        self._asking = threading.Thread(target=ask, daemon=True)
        self._asking.start()

    def stop_asking(self) -> None:
        """Wait until an engine that was asked early has answered; no thread is left then."""
        if self._asking is not None:
            self._asking.join()
            self._asking = None

    def ask(self) -> Mapping[str, "HeldImage"]:
        """The images that the engine held when it was first asked in this run."""
        self.stop_asking()
        if self._held is None:
            self._held = self.engine.images()
        return self._held

    def _holds_image(self, recipe: Recipe, head: ReportHead) -> bool:
        image = self.ask().get(recipe.image)
        return bool(image and image.id == head.made and is_held(image.labels, recipe))

    def _holds_task_image(self, task: str, head: ReportHead) -> bool:
        held = self._holds_image(self.recipe(task), head)
        if held:
            self._image_ids[task] = head.made
        return held

    def image_id(self, task: str) -> str:
        """The id of the task image that evidence is about: the one that was last built."""
        known = self._image_ids.get(task)
        if known:
            return known
        head = self.store.head("build_images", task)
        recipe = self.recipe(task).digest
        return head.made if head and head.ok and head.inputs == recipe else ""

    # Bases.

    @cached_property
    def base_inputs(self) -> Mapping[str, BaseInput]:
        """Generated context files by `repo/file`; what can't be read is validation's."""
        folders = self.survey.folders.items()
        found = (parse_inputs(folder.inputs, repo)[0] for repo, folder in folders if folder.inputs)
        return {item.name: item for items in found for item in items}

    def serving(self, base: Base) -> Sequence[BaseInput]:
        """The generated files that a base may take."""
        mine = (i for i in self.base_inputs.values() if i.repo == base.repo)
        return [i for i in mine if i.serves(base.tag)]

    @property
    def recipes(self) -> Mapping[str, Recipe]:
        """Recipes of bases by `repo:tag`, in the order to build them.

        Made anew where a generated file that counts by its content may have changed in this run.
        """
        made = {name: self.made(item) for name, item in self._unpinned.items()}
        if self._recipes is None or self._recipes[0] != made:
            ready = [base for base in self.survey.bases if self._dockerfile_digest(base)]
            found = base_recipes([self._source(b) for b in ready], self.config.namespace)[0]
            self._recipes = (made, {recipe.subject: recipe for recipe in found})
        return self._recipes[1]

    @cached_property
    def _unpinned(self) -> Mapping[str, BaseInput]:
        items = self.base_inputs.items()
        return {name: item for name, item in items if item.pin_kind == "unpinned"}

    def made(self, item: BaseInput) -> str:
        """The digest of a generated file, which its recipe counts where it has no pin."""
        head = self.store.head("base_inputs", item.name)
        return head.made if head and head.ok else ""

    def _source(self, base: Base) -> BaseSource:
        instructions = parse_dockerfile(read_text(self.root / base.dockerfile, _LARGEST_RECIPE))
        ignore = self.root / base.context / ".dockerignore"
        return BaseSource(
            base=base,
            images=images(instructions),
            sources=sources(instructions),
            dockerfile_digest=self._dockerfile_digest(base),
            files=self.survey.folders[base.repo].files,
            inputs={i.file: identity(i, self.made(i)) for i in self.serving(base)},
            ignore=tuple(read_text(ignore, _LARGEST_RECIPE).splitlines()),
        )

    def _dockerfile_digest(self, base: Base) -> str:
        folder = self.survey.folders.get(base.repo)
        own = base.dockerfile.removeprefix(f"{base.context}/")
        return next((f.digest for f in folder.files if f.path == own), "") if folder else ""

    def _made_from(self, name: str) -> str:
        item = self.base_inputs[name]
        return made_from(item, self.survey.folders[item.repo].files)

    def _make_input(self, name: str) -> Report:
        from kbench_build.steps.base_inputs import make_input  # noqa: PLC0415

        return make_input(self.root, self.base_inputs[name], inputs=self._made_from(name))

    def _build_base(self, name: str) -> Report:
        from kbench_build.steps.build_images import build_base  # noqa: PLC0415

        base = next(b for b in self.survey.bases if b.name == name)
        recipe = self.recipes[name]
        return build_base(
            self.root,
            base,
            recipe,
            engine=self.engine,
            dataset=self.config.name,
            rebuild=self.rebuild,
        )

    # Tasks.

    def recipe(self, task: str) -> Recipe:
        """The recipe of a task's image."""
        known = self._known_recipes()
        if task not in known.made:
            facts = self.survey.tasks[task]
            known.made[task] = task_recipe(
                namespace=self.config.namespace,
                task=task,
                images=facts.froms,
                environment=facts.parts["environment"],
                settings=facts.parts["settings"],
                bases=known.digests,
            )
        return known.made[task]

    def _known_recipes(self) -> "_TaskRecipes":
        """The recipes that were asked for before, as long as those of the bases are the same."""
        bases = self.recipes
        if self._task_recipes.bases is not bases:
            self._task_recipes = _TaskRecipes(bases=bases)
        return self._task_recipes

    @cached_property
    def surroundings(self) -> str:
        """Digest of what all tasks' findings depend on beside the task."""
        from kbench_build.steps import validate  # noqa: PLC0415

        bases = self.survey.bases
        recipes = {base.dockerfile: self._dockerfile_digest(base) for base in bases}
        return validate.surroundings(bases=bases, config=self.config, recipes=recipes)

    def _validate_inputs(self, subject: str) -> str:
        from kbench_build.steps import validate  # noqa: PLC0415

        if subject != DATASET:
            holder = self.holder(subject)
            return validate.inputs(
                tree=self.survey.tasks[subject].digest,
                surroundings=self.surroundings,
                holder=holder.name if holder else "",
            )
        return validate.dataset_inputs(
            traits=self.survey.traits,
            folders={repo: of_tree(f.files) for repo, f in self.survey.folders.items()},
            manifest=self.survey.dataset.manifest,
            surroundings=self.surroundings,
        )

    def _validate(self, subject: str) -> Report:
        from kbench_build.rim.upstream import Holder  # noqa: PLC0415
        from kbench_build.steps import validate  # noqa: PLC0415

        holder = None
        if subject != DATASET:
            nowhere = Holder(commit=self.survey.tasks[subject].checked_out)
            holder = self.holder(subject) or nowhere
        return validate.validate(
            subject,
            dataset=self.survey.dataset,
            bases=self.survey.bases,
            inputs=self._validate_inputs(subject),
            holder=holder,
            traits=self.survey.traits,
        )

    def holder(self, task: str) -> "Holder | None":
        """Where a task's base commit is to be had; None where no place for upstreams is known.

        Told once a run for all tasks of one upstream, when the bundles of its bases are made.
        """
        config = self.config
        # Asked for thousands of tasks, and the folder may come to be in this run.
        made = os.path.isdir(self._made_inputs)  # noqa: PTH112 - a third of the cost
        if not (config.mirrors or config.fetch or made):
            return None
        if task not in self._holders:
            from kbench_build.rim.upstream import Want, holders  # noqa: PLC0415

            wants = [
                Want(
                    task=name,
                    commit=self.survey.tasks[name].checked_out,
                    upstream=self.survey.tasks[name].upstream,
                    bundles=self._bundles(self.survey.tasks[name].froms),
                )
                for name in self._of_one_upstream[self._upstream_key(task)]
            ]
            found = holders(self.root, wants, mirrors=config.mirrors, fetch=config.fetch)
            self._holders.update(found)
        return self._holders[task]

    def _upstream_key(self, task: str) -> tuple[Upstream, tuple[str, ...]]:
        facts = self.survey.tasks[task]
        return facts.upstream, facts.froms

    @cached_property
    def _of_one_upstream(self) -> Mapping[tuple[Upstream, tuple[str, ...]], list[str]]:
        groups: dict[tuple[Upstream, tuple[str, ...]], list[str]] = {}
        for task in self.survey.tasks:
            groups.setdefault(self._upstream_key(task), []).append(task)
        return groups

    def history_inputs(self, task: str) -> Sequence[str]:
        """The generated bundles that a task's bases are given: its upstream's history."""
        froms = self.survey.tasks[task].froms
        if froms not in self._history_of:
            self._history_of[froms] = [item.name for item in self._history(froms)]
        return self._history_of[froms]

    def _bundles(self, froms: tuple[str, ...]) -> tuple[Path, ...]:
        """The bundles among the generated files of the bases that an image stands on."""
        from kbench_build.rim.upstream import bundles  # noqa: PLC0415

        if froms not in self._bundles_of:
            bases = self.survey.bases
            repos = {b.repo for b in bases if base_image(self.config.namespace, b) in froms}
            self._bundles_of[froms] = bundles(self.root, sorted(repos))
        return self._bundles_of[froms]

    def _build_image(self, task: str) -> Report:
        from kbench_build.steps.build_images import build_image  # noqa: PLC0415

        recipe = self.recipe(task)
        missing = missing_bases(recipe, self._known_recipes().digests)
        if missing:
            raise KbenchError(f"tasks/{task}/environment/Dockerfile: no base makes {missing[0]}")
        return build_image(
            self.root,
            task,
            recipe,
            engine=self.engine,
            dataset=self.config.name,
            rebuild=self.rebuild,
        )

    def _seal_inputs(self, task: str) -> str:
        facts = self.survey.tasks[task]
        return seal_inputs(
            image_id=self.image_id(task),
            solution=facts.parts["solution"],
            tests=facts.parts["tests"],
            instruction=facts.parts["instruction"],
            base_commit=facts.base_commit,
            answers=self._leaks_answered_for,
        )

    @cached_property
    def _leaks_answered_for(self) -> Sequence[tuple[str, str, str]]:
        """Suppressions that can be meant for what is found in an image's layers."""
        known = self.config.suppress
        return [(s.rule, s.task, s.reason) for s in known if s.rule.startswith(("leak", "*", "["))]

    def _seal(self, task: str) -> Report:
        from kbench_build.steps import seal  # noqa: PLC0415

        return seal.seal(
            self.root,
            task,
            engine=self.engine,
            image=self.image_id(task),
            inputs=self._seal_inputs(task),
            upstreams=self._upstreams(task),
            others={t: i for t in self._built() if t != task and (i := self.image_id(t))},
            suppressions=self.config.suppress,
        )

    def _upstreams(self, task: str) -> Sequence[Path]:
        """The bundles that the bases of a task's image were given: its upstream's history."""
        items = self._history(self.survey.tasks[task].froms)
        return [path for item in items if (path := place(self.root, item)).is_file()]

    def _history(self, froms: tuple[str, ...]) -> Sequence[BaseInput]:
        bases = [b for b in self.survey.bases if base_image(self.config.namespace, b) in froms]
        return [i for b in bases for i in self.serving(b) if i.pin_kind == "git_heads"]

    def _selfcheck_inputs(self, task: str) -> str:
        parts = self.survey.tasks[task].parts
        return selfcheck_inputs(
            image_id=self.image_id(task),
            solution=parts["solution"],
            tests=parts["tests"],
            settings=parts["settings"],
        )

    def _selfcheck(self, task: str) -> Report:
        from kbench_build.steps import selfcheck  # noqa: PLC0415

        return selfcheck.selfcheck(
            self.root,
            task,
            engine=self.engine,
            image=self.image_id(task),
            runs=self.runs,
            inputs=self._selfcheck_inputs(task),
            suppressions=self.config.suppress,
        )

    def _probe_inputs(self, task: str) -> str:
        return probe_inputs(selfcheck=self._selfcheck_inputs(task))

    def _grader(self, task: str) -> "Grader":
        """Grades a task with something else in the place of its solution, for as long as needed."""
        from kbench_build.rules.probing import limit_sec  # noqa: PLC0415
        from kbench_build.steps import selfcheck  # noqa: PLC0415

        checked = self.store.read("selfcheck", task)
        gold_sec = selfcheck.gold_seconds(checked.data) if checked else None
        return selfcheck.Grader(
            self.root,
            task,
            engine=self.engine,
            image=self.image_id(task),
            limit_sec=limit_sec(gold_sec) if gold_sec else None,
        )

    def _probe(self, task: str) -> Report:
        from kbench_build.steps import probe  # noqa: PLC0415

        return probe.probe(
            self.root,
            task,
            grade=self._grader(task),
            most=self.most_parts,
            inputs=self._probe_inputs(task),
            suppressions=self.config.suppress,
        )

    def _foreign(self) -> Sequence[str]:
        """The tasks with an image, and a verifier of their own."""
        return [t for t in self._built() if not self._has_ours(t)]

    def _has_ours(self, task: str) -> bool:
        return (self.root / TASKS / task / "tests" / "verify.json").is_file()

    def _sabotage_inputs(self, task: str) -> str:
        return sabotage_inputs(selfcheck=self._selfcheck_inputs(task))

    def _sabotage(self, task: str) -> Report:
        from kbench_build.steps import sabotage  # noqa: PLC0415

        return sabotage.sabotage(
            self.root,
            task,
            grade=self._grader(task).after,
            inputs=self._sabotage_inputs(task),
            suppressions=self.config.suppress,
        )

    def _probed(self, task: str) -> bool:
        """Whether the probe that is there looked at enough parts."""
        from kbench_build.steps.probe import covers  # noqa: PLC0415

        report = self.store.read("probe", task)
        return report is not None and covers(report.data, self.most_parts)

    def _repeated(self, task: str) -> bool:
        """Whether the selfcheck that is there was repeated often enough."""
        from kbench_build.steps.selfcheck import covers  # noqa: PLC0415

        report = self.store.read("selfcheck", task)
        return report is not None and covers(report.data, self.runs)

    # Releases.

    def release_names(self) -> Sequence[str]:
        """The releases below `dist/`, and the one that the dataset's version names."""
        from kbench_build.steps import release  # noqa: PLC0415

        due = release.release_folder(self.survey.dataset)
        found = due.parent.iterdir() if due.parent.is_dir() else ()
        return sorted({due.name, *(p.name for p in found if p.is_dir() and p.name[0] != ".")})

    def proof(self) -> "Proof":
        """What a release stands on: reports, and the digests that they must name now."""
        from kbench_build.rules.draft import Proof  # noqa: PLC0415

        return Proof(
            bases=self.survey.bases,
            recipes=(*self.recipes.values(), *map(self.recipe, self._built())),
            reports={step: _Stored(self, step) for step in _EVIDENCE},
            expected={
                step: {subject: planned.inputs(subject) for subject in planned.subjects()}
                for step, planned in self.steps.items()
                if step in _EVIDENCE
            },
        )

    def _release_inputs(self, _: str) -> str:
        from kbench_build.steps import release  # noqa: PLC0415

        trees = {f"{TASKS}/{name}": facts.digest for name, facts in self.survey.tasks.items()}
        trees |= {f"{BASES}/{repo}": of_tree(f.files) for repo, f in self.survey.folders.items()}
        return release.inputs(self.survey.dataset, trees, self.proof())

    def _release(self, _: str) -> Report:
        from kbench_build.steps import release  # noqa: PLC0415

        inputs = self._release_inputs("")
        return release.release(
            self.survey.dataset, self.proof(), inputs=inputs, known=self.survey.listings
        )

    def _release_is_there(self) -> bool:
        from kbench_build.steps import release  # noqa: PLC0415

        return release.release_folder(self.survey.dataset).is_dir()

    def _verify_inputs(self, name: str) -> str:
        from kbench_build.steps import verify  # noqa: PLC0415

        folder = self.root / "dist" / name
        return verify.inputs(folder) if folder.is_dir() else ""

    def _verify(self, name: str) -> Report:
        from kbench_build.steps import verify  # noqa: PLC0415

        folder = self.root / "dist" / name
        if not folder.is_dir():
            raise KbenchError(f"{folder}: no such release: make it with `doit release`")
        return verify.verify(folder, inputs=self._verify_inputs(name))


class _TaskRecipes:
    """Recipes of task images, made once for thousands of questions; they stand on these bases."""

    def __init__(self, *, bases: Mapping[str, Recipe]) -> None:
        self.bases = bases
        self.digests = {recipe.image: recipe.digest for recipe in bases.values()}
        self.made: dict[str, Recipe] = {}


class _Stored(Mapping[str, Report]):
    """The reports of one step by subject, read from disk when asked for and not kept."""

    def __init__(self, plan: Plan, step: str) -> None:
        self._store = plan.store
        self._step = step
        self._subjects = [s for s in plan.steps[step].subjects() if plan.store.head(step, s)]

    def __getitem__(self, subject: str) -> Report:
        report = self._store.read(self._step, subject)
        if report is None:
            raise KeyError(subject)
        return report

    def __iter__(self) -> Iterator[str]:
        return iter(self._subjects)

    def __len__(self) -> int:
        return len(self._subjects)
