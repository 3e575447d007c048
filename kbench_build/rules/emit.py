"""The files of a task that a mined change becomes.

Promises: the same change, runs, statement and settings give the same bytes; the image is made from
what the base reaches and nothing after it, as `docs/seal.md` says. Leaves to others whether the
change is one worth having, what `verify.json` takes from upstream, and writing.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tomlkit

from kbench_build.rules.content import (
    DOCKERFILE,
    EXPECTED,
    FIX,
    INSTRUCTION,
    TASK,
    TEST_PATCH,
    VERIFY,
)
from kbench_build.rules.expected_tests import CATEGORIES, RESULTS, STATUSES
from kbench_build.rules.forge_urls import change_url
from kbench_build.rules.harden_verify import protected_globs
from kbench_build.rules.task_toml import HARBOR_VERSIONS, SOURCE_KEYS
from kbench_build.runtime.verify_checkout import Globs

PREPARE = "environment/prepare.sh"
# Where the build puts its scripts, and what an environment's own files lie beside.
TOOLS = "/opt/kbench"
_SEAL, _CHECK = "seal_git_history.sh", "check_git_changes.sh"
_WIDTH = 100
# A verifier has more to do than to run the tests.
_LONGER, _MORE_SEC = 1.5, 60
_CHANGE_URL = "code_change_url"
_JVM = (".java", ".kt", ".kts", ".groovy", ".scala")
_LONGEST_TITLE = 300
_BUILD_SEC, _AGENT_SEC = 1800.0, 1800.0
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What an environment gives a task.

    `image` has the tools, `clone` (an image as well) the upstream's repository at `place`, of which
    the task gets what its base reaches (`history` is `ancestors`) or the base alone (`none`).
    `prepare` are shell commands, a line each, which get the variables `exported`; `files` lie at
    `TOOLS` by their names. The rest means what it means in `verify.json`.
    """

    image: str
    clone: str
    place: str
    workdir: str
    command: tuple[str, ...]
    reports: tuple[str, ...]
    history: str = "ancestors"
    environment: Mapping[str, str] = field(default_factory=dict)
    protected: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    exported: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    timeout_sec: float = 600.0
    cpus: float | None = None
    memory_mb: int | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a task comes from. What isn't known is empty, and left out."""

    repository: str
    url: str
    license: str
    type: str
    id: str
    change_url: str
    issue_urls: tuple[str, ...]
    base: str


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What is written as it is: the statement, the two patches, and what the runs showed."""

    statement: str
    fix: bytes
    test: bytes
    expected: Mapping[str, Any]


def task_id(repository: str, change: str) -> str:
    """`owner_name-number`; `change` is `#7`, or the first digits of a commit."""
    stem = _UNSAFE.sub("-", repository.replace("/", "_"))
    return f"{stem}-{change.removeprefix('#')}"


def task_files(
    task: Mapping[str, Any],
    *,
    base: str,
    setting: Setting,
    texts: Texts,
    verify: bytes,
    shipped: Mapping[str, bytes],
) -> dict[str, bytes]:
    """All files of a task, by place. `task` is the value of `task.toml`."""
    own = {f"environment/{name}": data for name, data in setting.files.items()}
    return {
        **own,
        **shipped,
        TASK: toml_text(task).encode("utf-8", "replace"),
        INSTRUCTION: (texts.statement.strip("\n") + "\n").encode("utf-8", "replace"),
        DOCKERFILE: dockerfile(setting, base).encode(),
        PREPARE: prepare_script(setting, base).encode("utf-8", "surrogateescape"),
        FIX: texts.fix,
        TEST_PATCH: texts.test,
        EXPECTED: expected_tests(texts.expected),
        VERIFY: verify,
    }


def dockerfile(setting: Setting, base: str) -> str:
    """The recipe: a stage that seals the checkout, and the tools' image, which takes it."""
    copied = " ".join(sorted([_CHECK, "prepare.sh", *setting.files]))
    return (
        f"FROM {setting.clone} AS sealed\n"
        f"COPY {_SEAL} {TOOLS}/\n"
        f"RUN bash {TOOLS}/{_SEAL} {setting.place} {base} {setting.history}\n"
        "\n"
        f"FROM {setting.image}\n"
        f"COPY --from=sealed {setting.place} {setting.workdir}\n"
        f"COPY {copied} {TOOLS}/\n"
        f"RUN bash {TOOLS}/prepare.sh\n"
        f"WORKDIR {setting.workdir}\n"
    )


def prepare_script(setting: Setting, base: str) -> str:
    """What the image's build runs in the checkout."""
    folder = shlex.quote(setting.workdir)
    check = f'bash {TOOLS}/{_CHECK} {folder} "$BASE"\n'
    builds = "".join(f"{line}\n" for line in setting.prepare)
    if builds:
        exports = (f"export {n}={shlex.quote(v)}\n" for n, v in setting.exported.items())
        builds = "".join(exports) + builds
    does = (
        "Checks the base out and builds it once; before and after that, the tree is the base's"
        if builds
        else "Checks the base out; the tree is the base's"
    )
    return (
        "#!/usr/bin/env bash\n"
        f"# {does} exactly.\n"
        "set -euo pipefail\n"
        "\n"
        f"readonly BASE={base}\n"
        "\n"
        f"cd {folder}\n"
        'git reset --quiet --hard "$BASE"\n'
        f"{check}{builds}{check if builds else ''}"
    )


def expected_tests(value: Mapping[str, Any]) -> bytes:
    """`tests/expected_tests.json`, in its usual order."""
    ordered: dict[str, Any] = {name: list(value.get(name, ())) for name in CATEGORIES}
    for result in RESULTS:
        statuses = value.get(result, {})
        ordered[result] = {status: list(statuses.get(status, ())) for status in STATUSES}
    text = json.dumps(ordered, indent=2, ensure_ascii=False) + "\n"
    try:
        return text.encode()
    except UnicodeEncodeError:  # an id with half a character, which UTF-8 can't hold
        return (json.dumps(ordered, indent=2) + "\n").encode("ascii")


def verify_draft(
    setting: Setting, base: str, hidden: Iterable[str], fix: Iterable[str]
) -> dict[str, Any]:
    """The value of `tests/verify.json`, before what it takes from upstream.

    `hidden` and `fix` are the paths of the two patches: what the fix changes is never protected.
    """
    globs = setting.protected or _usual_globs(setting.command, tuple(hidden))
    chosen = Globs(list(globs))
    spared = (f"!{path}" for path in sorted(set(fix)) if chosen.matches(path))
    return {
        "version": 1,
        "workdir": setting.workdir,
        "base_commit": base,
        "command": list(setting.command),
        "environment": dict(setting.environment),
        "timeout_sec": max(1, round(setting.timeout_sec)),
        "reports": list(setting.reports),
        "hidden": {},
        "protected": {"globs": [*globs, *spared], "files": {}},
    }


def _usual_globs(command: Sequence[str], hidden: Sequence[str]) -> tuple[str, ...]:
    """The change's test sets, and what steers the build."""
    globs = protected_globs(command, hidden, ())
    is_jvm = any(path.endswith(_JVM) for path in hidden)
    return tuple(glob for glob in globs if is_jvm or "junit" not in glob)


def task_toml(
    task: str,
    *,
    namespace: str,
    title: str,
    source: Source,
    setting: Setting,
    pieces: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """The value of `task.toml`: what is known, then what each of the pieces says instead."""
    about = {"name": f"{namespace}/{task.lower()}", "description": _line(title)}
    seconds, cpus = setting.timeout_sec, setting.cpus
    whole = int(cpus) if cpus and cpus.is_integer() else cpus
    limits = {"cpus": whole, "memory_mb": setting.memory_mb}
    value: dict[str, Any] = {
        "schema_version": HARBOR_VERSIONS[-1],
        "task": about,
        "metadata": {"source": _source(source)},
        "environment": {
            "build_timeout_sec": _BUILD_SEC,
            **{name: limit for name, limit in limits.items() if limit},
            "network_mode": "no-network",
        },
        "agent": {"timeout_sec": _AGENT_SEC, "network_mode": "no-network"},
        "verifier": {
            "timeout_sec": float(round(max(seconds * _LONGER, seconds + _MORE_SEC))),
            "network_mode": "no-network",
        },
    }
    for piece in pieces:
        value = laid_over(value, piece)
    told = value["metadata"]["source"]
    home = told.get("repository_url")
    if isinstance(home, str) and source.id.isdecimal() and not told.get(_CHANGE_URL):
        told[_CHANGE_URL] = change_url(home, int(source.id))
    if isinstance(told.get(_CHANGE_URL), str):
        told[_CHANGE_URL] = told[_CHANGE_URL].replace("{number}", source.id)
    return value


def unknown(task: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of `[metadata.source]` that a task must have and this one lacks."""
    source = task["metadata"]["source"]
    return tuple(key for key in SOURCE_KEYS if not source.get(key))


def _line(title: str) -> str:
    """A title in one line of bounded length, without what no file of text can hold."""
    known = title[:_LONGEST_TITLE].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in known).split())


def _source(source: Source) -> dict[str, Any]:
    owner, _, name = source.repository.partition("/")
    told = {
        "repository_owner": owner,
        "repository_name": name,
        "repository_url": source.url,
        "license": source.license,
        "code_change_type": source.type,
        "code_change_id": source.id,
        _CHANGE_URL: source.change_url,
        "issue_urls": list(source.issue_urls),
        "base_commit": source.base,
    }
    return {key: value for key, value in told.items() if value or key == "issue_urls"}


def laid_over(value: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """A value with what a piece of it says instead: tables are joined, anything else replaced."""
    merged = dict(value)
    for key, new in piece.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(new, Mapping)
        merged[key] = laid_over(old, new) if both else new  # type: ignore[arg-type]
    return merged


def toml_text(value: Mapping[str, Any]) -> str:
    """A TOML document: plain keys first, then tables; a list that is too long a line each."""
    return tomlkit.dumps(_written(value))


def _written(value: Mapping[str, Any]) -> dict[str, Any]:
    """The value with plain keys before tables, and its long lists broken."""
    plain = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
    tables = {k: v for k, v in value.items() if isinstance(v, Mapping)}
    made: dict[str, Any] = {k: _list(k, v) if isinstance(v, list) else v for k, v in plain.items()}
    return made | {key: _written(table) for key, table in tables.items()}


def _list(key: str, items: Sequence[Any]) -> Any:
    item = tomlkit.item(list(items))
    if len(f"{key} = {item.as_string()}") <= _WIDTH:
        return item
    lines = "".join(f"  {tomlkit.item(each).as_string()},\n" for each in items)
    return tomlkit.value(f"[\n{lines}]")
