"""What is to become of a task in the older shape: its files as they should be, or why not.

Promises: pure; all or nothing, so a task with one refusal has no new files; what it proposes is
recognised again and left as it is. A task that has `tests/verify.json` keeps what people wrote
there. Leaves what verify.json takes from upstream to the caller, and writing too.
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbench_build.model import Base, Finding
from kbench_build.rules.content import (
    DOCKERFILE,
    EXPECTED,
    FIX,
    SOLVE,
    TASK,
    TEST,
    TEST_PATCH,
    VERIFY,
)
from kbench_build.rules.findings import printable
from kbench_build.rules.harden_bases import twin_of, twin_place, with_twins
from kbench_build.rules.harden_environment import image_settings
from kbench_build.rules.harden_prepare import prepared, read_prepare, solve_refusals
from kbench_build.rules.harden_recipe import (
    Recipe,
    is_sealed,
    sealed_recipe,
    without_checkout,
)
from kbench_build.rules.harden_reports import report_globs
from kbench_build.rules.harden_task_toml import hardened_toml
from kbench_build.rules.harden_tests import COLLECTOR, Refusal, read_test
from kbench_build.rules.harden_verify import drafted
from kbench_build.rules.manifest import MANIFEST
from kbench_build.rules.parsing import parse_toml
from kbench_build.rules.patches import parse_patch
from kbench_build.rules.verifier_data import with_quarantine

PREPARE = "environment/prepare.sh"
_COLLECTOR = f"tests/{COLLECTOR}"
_QUARANTINE = "tests/quarantine.json"
_NEEDED = (TASK, TEST, TEST_PATCH, EXPECTED, FIX, DOCKERFILE, PREPARE)
_MOST_TEXT = 1 << 16
_MOST_REFUSALS = 20
_MEND = {
    TEST: "see docs/harden.md for the lines that are; or write tests/verify.json yourself",
    SOLVE: "let it apply fix.patch in the checkout and do nothing else",
    PREPARE: "move what changes files into the base's Dockerfile, or seal by hand (docs/seal.md)",
    DOCKERFILE: "move it into the base's Dockerfile, or seal by hand (docs/seal.md)",
    TASK: "change it by hand",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a maintainer decides: how much history the seal keeps, and what is known better.

    `settings` are variables for the test command beside those found, `reports` globs in place of
    those found.
    """

    namespace: str
    history: str = "ancestors"
    settings: Mapping[str, str] = field(default_factory=dict)
    reports: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A task's new texts by place, and verify.json's value before upstream is asked.

    `twins` are Dockerfiles of bases without a checkout that the task then needs, by the image of
    the base. `notes` are findings that stop nothing.
    """

    texts: Mapping[str, bytes] = field(default_factory=dict)
    verify: Mapping[str, Any] | None = None
    twins: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()


def plan(
    task: str,
    files: Mapping[str, bytes],
    *,
    unread: Mapping[str, str],
    shipped: Mapping[str, bytes],
    bases: Mapping[str, str],
    options: Options,
) -> Plan:
    """Plan a task's new files.

    `files` are its own, by place, `unread` says why others weren't read; `shipped` are those that
    are the same in every task; `bases` the texts of the bases' Dockerfiles, by image.
    """
    drafter = _Drafter(task, files, bases=bases, options=options)
    for place in sorted(unread.keys() & {*_NEEDED, *shipped, VERIFY, SOLVE, _QUARANTINE}):
        drafter.refuse(place, [Refusal(line=0, reason=unread[place])], "make it a plain file")
    if not drafter.refusals:
        drafter.decide(shipped)
    if drafter.refusals:
        return Plan(refusals=tuple(drafter.refusals), notes=tuple(drafter.notes))
    return Plan(
        texts={**drafter.texts, **shipped},
        verify=drafter.verify,
        twins=drafter.twins,
        notes=tuple(drafter.notes),
    )


class _Drafter:
    """Goes through a task's files; `refusals` stay empty where all of them are recognised."""

    def __init__(
        self, task: str, files: Mapping[str, bytes], *, bases: Mapping[str, str], options: Options
    ) -> None:
        self.task, self.files, self.bases, self.options = task, files, bases, options
        self.texts: dict[str, bytes] = {}
        self.twins: dict[str, str] = {}
        self.verify: dict[str, Any] | None = None
        self.refusals: list[Finding] = []
        self.notes: list[Finding] = []

    def decide(self, shipped: Mapping[str, bytes]) -> None:
        """Read what is there; each step needs what the one before found."""
        missing = [place for place in _NEEDED if place not in self.files]
        if VERIFY in self.files:
            missing = [place for place in missing if place != PREPARE]
        if missing:
            reason = f"isn't in the older shape, which has {', '.join(missing)}"
            self.refuse("", [Refusal(line=0, reason=reason)], "nothing, if another form is meant")
            return
        self.verify = self._held() if VERIFY in self.files else self._recognised(shipped)
        if self.verify is not None and not self.refusals:
            self._seal(self.verify)
            self._task_toml(str(self.verify["base_commit"]))

    def _text(self, place: str) -> str | None:
        data = self.files[place]
        if len(data) > _MOST_TEXT:
            reason = f"has {len(data):,} bytes, more than {_MOST_TEXT:,}"
            self.refuse(place, [Refusal(line=0, reason=reason)])
            return None
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            self.refuse(place, [Refusal(line=0, reason=f"byte {error.start} isn't UTF-8")])
            return None

    def refuse(self, place: str, refusals: Iterable[Refusal], mend: str = "") -> None:
        """Note why the task is left as it is."""
        found = list(refusals)
        if len(found) > _MOST_REFUSALS:
            reason = f"has more of the kind: only the first {_MOST_REFUSALS} are listed"
            found = [*found[:_MOST_REFUSALS], Refusal(line=0, reason=reason)]
        self.refusals += [
            self._finding("harden/refused", "error", place, refusal, mend or _MEND.get(place, ""))
            for refusal in found
        ]

    def _note(self, rule: str, place: str, refusal: Refusal, mend: str) -> None:
        self.notes.append(self._finding(rule, "note", place, refusal, mend))

    def _finding(
        self, rule: str, severity: Any, place: str, refusal: Refusal, mend: str
    ) -> Finding:
        return Finding(
            rule=rule,
            severity=severity,
            file=f"tasks/{self.task}/{place}".rstrip("/"),
            where=f"line {refusal.line}" if refusal.line else "",
            message=printable(refusal.reason),
            mend=mend,
        )

    def _held(self) -> dict[str, Any] | None:
        """The value of a verify.json that is there already."""
        try:
            value = json.loads(self.files[VERIFY])
        except (ValueError, RecursionError):
            value = None
        fits = isinstance(value, dict) and all(
            isinstance(value.get(key), str) for key in ("workdir", "base_commit")
        )
        if not fits:
            reason = "is no object with a workdir and a base_commit"
            self.refuse(VERIFY, [Refusal(line=0, reason=reason)], "mend or delete it")
            return None
        return with_quarantine(value, _QUARANTINE in self.files)

    def _recognised(self, shipped: Mapping[str, bytes]) -> dict[str, Any] | None:
        """verify.json's value from test.sh, prepare.sh and the Dockerfiles."""
        texts = [self._text(place) for place in (TEST, PREPARE, DOCKERFILE)]
        if None in texts:
            return None
        test, prepare, dockerfile = (text or "" for text in texts)
        image = image_settings(dockerfile, self.bases)
        script = read_test(test, image.values)
        self.refuse(TEST, script.refusals)
        commit = read_prepare(prepare, script.command)
        self.refuse(PREPARE, commit.refusals)
        self._solution(script.workdir, shipped)
        reports = self.options.reports or self._reports(test, script.workdir)
        if self.refusals:
            return None
        self._say_what_is_outside(image.outside)
        self._say_what_the_tests_read(script.command, script.workdir)
        data = drafted(
            workdir=script.workdir,
            base=commit.base,
            command=script.command,
            environment={**image.values, **script.settings, **self.options.settings},
            verifier_sec=self._verifier_sec(),
            reports=reports,
            hidden=parse_patch(self.files[TEST_PATCH]).paths,
            fix=parse_patch(self.files[FIX]).paths,
        )
        return with_quarantine(data, _QUARANTINE in self.files)

    def _solution(self, workdir: str, shipped: Mapping[str, bytes]) -> None:
        if SOLVE not in self.files or self.files[SOLVE] == shipped.get(SOLVE):
            return
        text = self._text(SOLVE)
        if text is not None and workdir:
            self.refuse(SOLVE, solve_refusals(text, workdir))

    def _reports(self, test: str, workdir: str) -> Sequence[str]:
        collector = self.files.get(_COLLECTOR, b"").decode("utf-8", "replace")[:_MOST_TEXT]
        found = (*report_globs(test, workdir), *report_globs(collector, workdir))
        if not any(not glob.startswith("!") for glob in found):
            reason = "neither it nor the collector says where the JUnit reports are"
            self.refuse(TEST, [Refusal(line=0, reason=reason)], "name them: --reports GLOB")
        return tuple(dict.fromkeys(found))

    def _verifier_sec(self) -> float:
        config = parse_toml(TASK, self.files[TASK])
        verifier = config.get("verifier") if isinstance(config, Mapping) else None
        value = verifier.get("timeout_sec") if isinstance(verifier, Mapping) else None
        return float(value) if isinstance(value, int | float) and 0 < value < 1e6 else 600.0

    def _say_what_is_outside(self, image: str) -> None:
        if image:
            reason = f"stands on {image} in the end; variables that it sets aren't known here"
            mend = "give those that the tests need: --env NAME=VALUE"
            self._note("harden/environment", DOCKERFILE, Refusal(line=0, reason=reason), mend)

    def _say_what_is_louder(self, recipe: Recipe) -> None:
        for line, lacking in recipe.louder:
            reason = "an installation that fails stops the build now; so far it went unnoticed"
            mend = "take out of it what the image doesn't need, or can't install"
            if lacking:
                reason += f"; no line here installs {' or '.join(lacking)}, which it calls"
            self._note("harden/installation", DOCKERFILE, Refusal(line=line, reason=reason), mend)

    def _say_what_the_tests_read(self, command: Sequence[str], workdir: str) -> None:
        """Files outside the checkout that steer the tests: nothing puts those back."""
        for word in command[1:]:
            path = word.rpartition("=")[2]
            if path.startswith("/") and not path.startswith((f"{workdir}/", "/tests/")):
                reason = f"the tests are given {path}, which an agent can change: it stands outside"
                mend = (
                    f"put a copy into tests/, and write /tests/{path.rpartition('/')[2]} in command"
                )
                note = Refusal(line=0, reason=f"{reason} the checkout")
                self._note("harden/outside", VERIFY, note, mend)

    def _seal(self, data: Mapping[str, Any]) -> None:
        """The Dockerfile's seal, and prepare.sh with it; left as they are where it is there."""
        workdir, base = str(data["workdir"]), str(data["base_commit"])
        text = self._text(DOCKERFILE)
        if text is None or is_sealed(text, base):
            return
        recipe = sealed_recipe(text, workdir=workdir, base=base, history=self.options.history)
        self.refuse(DOCKERFILE, recipe.refusals)
        self._say_what_is_louder(recipe)
        self.texts[DOCKERFILE] = recipe.text.encode()
        if not recipe.refusals and without_checkout(recipe.image) not in self.bases:
            twin = twin_of(recipe.image, self.bases, workdir)
            self.refuse(DOCKERFILE, [Refusal(line=0, reason=twin.reason)] if twin.reason else [])
            self.twins[recipe.image] = twin.text
        self._prepare(workdir, base, tuple(map(str, data.get("command", ()))))

    def _prepare(self, workdir: str, base: str, command: tuple[str, ...]) -> None:
        text = self._text(PREPARE) if PREPARE in self.files else None
        if text is None:
            return
        script = read_prepare(text, command)
        self.refuse(PREPARE, script.refusals)
        for said, wanted in ((script.base, base), (script.workdir, workdir)):
            if said and said != wanted:
                reason = f"says {said}, while elsewhere it is {wanted}"
                self.refuse(PREPARE, [Refusal(line=0, reason=reason)])
        for line in script.swallowed:
            reason = "the build that warms the caches may fail unnoticed (|| true); left as it is"
            mend = "take `|| true` away if the build passes at the base"
            self._note("harden/warm-up", PREPARE, Refusal(line=line, reason=reason), mend)
        self.texts[PREPARE] = prepared(text, script).encode()

    def _task_toml(self, base: str) -> None:
        text = self._text(TASK)
        if text is None:
            return
        name = f"{self.options.namespace}/{self.task.lower()}"
        found = hardened_toml(text, name=name, base=base)
        self.refuse(TASK, found.refusals)
        self.texts[TASK] = found.text.encode()


def not_held(task: str, base: str) -> Finding:
    """That no repository at hand holds a task's base, so that verify.json can't be completed."""
    return Finding(
        rule="harden/no-upstream",
        severity="error",
        file=f"tasks/{task}/{VERIFY}",
        where="base_commit",
        message=f"no repository at hand holds the commit {printable(base)}, from which the hidden "
        "and protected files are read",
        mend="give a clone or a bundle of the upstream repository (--repository PATH), or a folder "
        "of them (--upstream DIR)",
    )


def failed(task: str, message: str) -> Finding:
    """That a task's data doesn't fit the upstream repository."""
    return Finding(
        rule="harden/refused",
        severity="error",
        file=f"tasks/{task}",
        message=printable(message),
        mend="mend the patch; `kbench validate` says more",
    )


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One file, named from the dataset's root: what is there (None: nothing), what should be.

    `whole` says that the file is replaced, whatever it held.
    """

    file: str
    old: bytes | None
    new: bytes
    whole: bool = False


def edits(
    task: str, files: Mapping[str, bytes], wanted: Mapping[str, bytes], shipped: Container[str]
) -> tuple[Edit, ...]:
    """The files of a task that differ from what is wanted, by place."""
    return tuple(
        Edit(
            file=f"tasks/{task}/{place}",
            old=files.get(place),
            new=new,
            whole=place in shipped,
        )
        for place, new in sorted(wanted.items())
        if files.get(place) != new
    )


def base_edits(
    manifest: str, bases: Iterable[Base], namespace: str, twins: Mapping[str, str]
) -> tuple[Edit, ...]:
    """The files that these twins of bases need: a Dockerfile each, and their manifest lines."""
    chosen = tuple(base for base in bases if f"{namespace}/{base.name}" in twins)
    if not chosen:
        return ()
    new = with_twins(manifest, chosen).encode()
    recipes = [
        Edit(file=twin_place(b), old=None, new=twins[f"{namespace}/{b.name}"].encode())
        for b in chosen
    ]
    return (Edit(file=MANIFEST, old=manifest.encode(), new=new), *recipes)
