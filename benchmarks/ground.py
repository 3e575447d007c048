"""A generated dataset and the states that figures are taken in: new, validated, all up to date."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import images
from benchmarks.datasets import make_dataset, namespace_of
from benchmarks.processes import DOIT, apart, measure
from kbench_build.model import Report
from kbench_build.rim.store import STATE

_BUILT, _PROVED = ("build_bases", "build_images"), ("seal", "selfcheck")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The dataset with so many tasks, in a folder of its own below `folder`."""

    folder: Path
    tasks: int

    @property
    def root(self) -> Path:
        """The dataset's root."""
        return self.folder / f"tasks-{self.tasks}"

    def make(self) -> None:
        """Generate it, unless it is there."""
        apart(make_dataset, self.root, self.tasks)

    def forms(self) -> Iterator[tuple[str, Path]]:
        """The dataset with its tasks' own verifier, and one with the shipped one, both new."""
        self.renew()
        yield "own", self.root
        shipped = self.folder / f"tasks-{self.tasks}-shipped"
        apart(partial(make_dataset, shipped=True), shipped, self.tasks)
        yield "shipped", shipped

    def renew(self) -> None:
        """As after a clone: no reports, no release."""
        for name in (STATE, "dist"):
            shutil.rmtree(self.root / name, ignore_errors=True)

    def validate(self) -> None:
        """Bring validation up to date."""
        measure([*DOIT, "validate"], self.root)

    @contextmanager
    def all_up_to_date(self) -> Iterator[None]:
        """Every report is there, and the engine holds every image; images are removed after."""
        self.validate()
        owner = namespace_of(self.tasks)
        try:
            apart(_prove, self.root, owner)
            measure(DOIT, self.root)
            yield
        finally:
            apart(images.remove, owner)


def _prove(root: Path, owner: str) -> None:
    """What the steps that need an engine would leave, had they run."""
    from kbench_build.plan import Plan  # noqa: PLC0415 - not in the process that measures

    plan = Plan(root)
    recipes = [*plan.recipes.values(), *map(plan.recipe, plan.survey.tasks)]
    images.load(recipes, owner)
    made = {recipe.subject: plan.ask()[recipe.image].id for recipe in recipes}
    names: list[str] = []
    for step in (*_BUILT, *_PROVED):
        for subject in plan.steps[step].subjects():
            report = Report(
                step=step,
                subject=subject,
                inputs=plan.steps[step].inputs(subject),
                ok=True,
                summary="as if it had run",
                seconds=0.0,
                made=made[subject] if step in _BUILT else "",
            )
            plan.store.write(report)
            names.append(f"{step}:{subject}\n")
    # As after a run that was killed: doit's own database learns of them by the next run.
    (root / STATE / "journal").write_text("".join(names))
