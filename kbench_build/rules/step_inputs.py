"""What seals, selfchecks, probes and sabotages depend on, as one digest each.

Apart from the steps: a run with nothing to do asks for thousands of these and needs nothing else.
"""

from collections.abc import Sequence

from kbench_build import digest

# Raised with every change of what is proven, or of how it is run: older reports are then stale.
SEAL_VERSION = 2
SELFCHECK_VERSION = 2
PROBE_VERSION = 1
SABOTAGE_VERSION = 1

SUPPRESSED = " suppressed"
"""How the summary of a run ends where something that it found is answered for."""


def seal_inputs(
    *,
    image_id: str,
    solution: str,
    tests: str,
    instruction: str,
    base_commit: str | None,
    answers: Sequence[Sequence[str]] = (),
) -> str:
    """Digest of all that the proof reads: the image, the patches' folders, the base commit.

    The instruction, because what it tells is no secret; `answers` are the suppressions that count.
    """
    parts = [SEAL_VERSION, image_id, solution, tests, instruction, base_commit]
    return digest.of_json([*parts, [list(answer) for answer in answers]])


def selfcheck_inputs(*, image_id: str, solution: str, tests: str, settings: str) -> str:
    """Digest of all that the runs depend on, from the digests of a task's parts."""
    parts = {"image": image_id, "solution": solution, "tests": tests, "settings": settings}
    return digest.of_json({"selfcheck": SELFCHECK_VERSION, **parts})


def sabotage_inputs(*, selfcheck: str) -> str:
    """Digest of all that sabotages depend on: what a selfcheck does."""
    return digest.of_json({"sabotage": SABOTAGE_VERSION, "selfcheck": selfcheck})


def probe_inputs(*, selfcheck: str) -> str:
    """Digest of all that a probe depends on: what a selfcheck does."""
    return digest.of_json({"probe": PROBE_VERSION, "selfcheck": selfcheck})
