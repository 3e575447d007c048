"""What is varied from run to run although it must not matter, and how it gets into a run.

The first run is plain. Each further one has a fixed set of wishes, so that run 3 is the same on
every machine; what an image or a task's data doesn't allow is left out and said. A variation goes
in through the data that the host gives to the verifier, so the verifier knows nothing of it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# One busy loop and half of the CPUs: a single thread is left with about a quarter of its speed.
LOOPS = 1
SLOWER = 4.0
LOADED = "/kbench/vary/run_loaded.sh"
_LEAST_CPUS = 0.5
_NEUTRAL = frozenset({"C", "POSIX"})


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What one run is to have otherwise. Empty, None, 0 and False: as always."""

    time_zone: str = ""
    locale: str = ""
    hash_seed: int | None = None
    clock_days: int = 0
    loaded: bool = False


# Zones with a daylight-saving time and with odd offsets, one a day ahead; a decimal comma; a
# dotless i; no UTF-8; the other half of the year; another year. Environment and machine take turns,
# so that a test that stumbles over one of them is told from one that stumbles over the other.
_WISHES = (
    Wish(time_zone="America/St_Johns", locale="de_DE.UTF-8", hash_seed=1),
    Wish(clock_days=183, loaded=True),
    Wish(time_zone="Pacific/Chatham", locale="tr_TR.UTF-8", hash_seed=2),
    Wish(time_zone="Asia/Kathmandu", locale="C", hash_seed=3, clock_days=1000, loaded=True),
)


def wish_of(run: int) -> Wish:
    """What a run (from 1) is to vary: nothing in the first, then one set after the other."""
    return Wish() if run <= 1 else _WISHES[(run - 2) % len(_WISHES)]


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """What an image allows: its locales, its faketime library, whether it holds a Java."""

    locales: frozenset[str] = frozenset()
    faketime: str = ""
    java: bool = False

    def has_locale(self, name: str) -> bool:
        """Whether the image holds a locale, however it spells it."""
        return name in _NEUTRAL or _plain(name) in {_plain(held) for held in self.locales}


def _plain(locale: str) -> str:
    return locale.lower().replace("-", "")


def allowed(output: str) -> Allowed:
    """What `what_can_vary.sh` printed. Lines of other kinds are left out."""
    words = [line.split(" ", 1) for line in output.splitlines() if " " in line]
    named: dict[str, list[str]] = {"locale": [], "faketime": [], "java": []}
    for kind, value in words:
        if kind in named:
            named[kind].append(value.strip())
    return Allowed(
        locales=frozenset(named["locale"]),
        faketime=next((p for p in named["faketime"] if re.fullmatch(r"/[\w./+-]+", p)), ""),
        java=bool(named["java"]),
    )


@dataclass(frozen=True, kw_only=True)
class Variation:
    """A wish as far as it can be had: variables, a load, and what was left out and why."""

    environment: Mapping[str, str] = field(default_factory=dict)
    loaded: bool = False
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The variation in a few words; empty for none."""
        return ", ".join(_words(self))


PLAIN = Variation()


def fit(wish: Wish, image: Allowed, given: Mapping[str, str]) -> Variation:
    """The wish in an image, for a command whose environment the task gives.

    A variable that the task sets is set for a reason: it isn't varied.
    """
    left_out: list[str] = []
    changes: dict[str, str] = {}
    for found in (
        _time_zone(wish, given, left_out),
        _locale(wish, image, given, left_out),
        _hash_seed(wish, given),
        _clock(wish, image, given, left_out),
    ):
        changes |= found
    return Variation(environment=changes, loaded=wish.loaded, left_out=tuple(left_out))


def _time_zone(wish: Wish, given: Mapping[str, str], left_out: list[str]) -> dict[str, str]:
    if not wish.time_zone:
        return {}
    if "TZ" in given:
        left_out.append("time zone: the task sets TZ")
        return {}
    return {"TZ": wish.time_zone}


def _locale(
    wish: Wish, image: Allowed, given: Mapping[str, str], left_out: list[str]
) -> dict[str, str]:
    if not wish.locale:
        return {}
    pinned = next((name for name in given if name == "LANG" or name.startswith("LC_")), None)
    if pinned:
        left_out.append(f"locale: the task sets {pinned}")
        return {}
    if image.has_locale(wish.locale):
        return {"LC_ALL": wish.locale, "LANG": wish.locale}
    if image.java and "user.language" not in given.get("JAVA_TOOL_OPTIONS", ""):
        return {"JAVA_TOOL_OPTIONS": _joined(given, "JAVA_TOOL_OPTIONS", _java(wish.locale))}
    left_out.append(f"locale: the image holds no {wish.locale}")
    return {}


def _java(locale: str) -> str:
    language, _, country = locale.partition(".")[0].partition("_")
    return f"-Duser.language={language} -Duser.country={country}"


def _joined(given: Mapping[str, str], name: str, more: str) -> str:
    return f"{given[name]} {more}" if given.get(name) else more


def _hash_seed(wish: Wish, given: Mapping[str, str]) -> dict[str, str]:
    if wish.hash_seed is None:
        return {}
    names = [name for name in ("PYTHONHASHSEED", "PERL_HASH_SEED") if name not in given]
    return dict.fromkeys(names, str(wish.hash_seed))


def _clock(
    wish: Wish, image: Allowed, given: Mapping[str, str], left_out: list[str]
) -> dict[str, str]:
    if not wish.clock_days:
        return {}
    if not image.faketime:
        left_out.append("clock: the image holds no libfaketime")
        return {}
    if "FAKETIME" in given or "LD_PRELOAD" in given:
        left_out.append("clock: the task sets FAKETIME or LD_PRELOAD")
        return {}
    return {
        "LD_PRELOAD": image.faketime,
        "FAKETIME": f"{wish.clock_days:+d}d",
        # A Java waits for ever on a monotonic clock that jumps.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def _words(variation: Variation) -> Iterator[str]:
    shown = {
        name: value
        for name, value in variation.environment.items()
        if name not in ("LANG", "LD_PRELOAD", "DONT_FAKE_MONOTONIC", "PERL_HASH_SEED")
        and name != "FAKETIME_DONT_FAKE_MONOTONIC"
    }
    yield from (f"{name}={value}" for name, value in shown.items())
    if variation.loaded:
        yield "a loaded machine"


# How a variation gets into a run.


def varied_data(verify: Mapping[str, Any], variation: Variation) -> dict[str, Any]:
    """verify.json's value for one run: the command's environment, its load, its time limit."""
    environment = {**verify.get("environment", {}), **variation.environment}
    changed = {**verify, "environment": environment}
    if variation.loaded:
        changed["command"] = [*loaded_command(), *verify.get("command", ())]
        changed["timeout_sec"] = verify.get("timeout_sec", 0) * SLOWER
    return changed


def loaded_command() -> tuple[str, ...]:
    """What stands before a command that is to run beside busy loops."""
    return ("sh", LOADED, str(LOOPS))


def loaded_cpus(cpus: float | None) -> float:
    """How many CPUs a loaded run gets, of those that the task asks for (None: no limit)."""
    return max(_LEAST_CPUS, (cpus or 2.0) / 2)


def not_varied(variations: Iterable[Variation]) -> tuple[str, ...]:
    """Everything that was left out of some runs, each once."""
    return tuple(dict.fromkeys(said for v in variations for said in v.left_out))


def to_json(variation: Variation, cpus: float | None) -> dict[str, Any]:
    """A run's variation as its report has it."""
    load = {"cpus": loaded_cpus(cpus), "busy_loops": LOOPS, "time_limits": f"x {SLOWER:g}"}
    return {
        "environment": dict(variation.environment),
        **({"load": load} if variation.loaded else {}),
        **({"left_out": list(variation.left_out)} if variation.left_out else {}),
    }
