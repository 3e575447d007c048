"""All checks of a task, and what a task's form leaves unchecked."""

from kbench_build.model import Finding
from kbench_build.rules import (
    documents,
    expected,
    expected_ids,
    expected_worth,
    fixed_clone,
    foreign_verifier,
    hidden_tests,
    layout,
    network,
    on_base,
    patch_checks,
    provenance,
    quarantine,
    recipe_trust,
    recipes,
    statement,
    task_toml,
    verifier,
)
from kbench_build.rules.content import DOCKERFILE, Content
from kbench_build.rules.findings import Check, run_checks
from kbench_build.rules.recipes import base_commit
from kbench_build.rules.tables import table

TASK_CHECKS: tuple[Check[Content], ...] = (
    *layout.CHECKS,
    *documents.CHECKS,
    *task_toml.CHECKS,
    *provenance.CHECKS,
    *network.CHECKS,
    *recipes.CHECKS,
    *fixed_clone.CHECKS,
    *recipe_trust.CHECKS,
    *patch_checks.CHECKS,
    *expected.CHECKS,
    *expected_worth.CHECKS,
    *hidden_tests.CHECKS,
    *expected_ids.CHECKS,
    *quarantine.CHECKS,
    *verifier.CHECKS,
    *foreign_verifier.CHECKS,
    *statement.CHECKS,
)

BASE_CHECKS = on_base.CHECKS


def check_task(task: Content) -> tuple[Finding, ...]:
    """Everything that the checks for a task of its form find in it."""
    checks = (check for check in TASK_CHECKS if not check.forms or task.form in check.forms)
    return tuple(run_checks(checks, task, f"tasks/{task.id}"))


def not_checked(task: Content) -> tuple[str, ...]:
    """What can't be checked of this task, and why: one sentence each."""
    plain = task.form == "plain"
    missing = {
        "its own test.sh decides the reward: the shipped verifier's promises don't hold for it": (
            task.form != "shipped"
        ),
        "no expected tests: which tests decide the reward isn't known": plain,
        "no hidden patch: which files the tests are isn't known": plain,
        "no base commit in task.toml: where the image's repository should stand isn't known": (
            base_commit(task.config) is None
        ),
        "no number of a change: whether the instruction links to it isn't known": (
            task.origin.change is None
        ),
        "no hidden tests to read: whether the instruction says all they need isn't known": (
            not task.hidden_lines
        ),
        "no licence in task.toml": "license" not in table(task.config, "metadata", "source"),
        "no Dockerfile: what the image holds isn't known": DOCKERFILE not in task.files,
    }
    return tuple(sentence for sentence, is_missing in missing.items() if is_missing)
