"""Which files every task shares with every other, byte for byte."""

from collections.abc import Mapping

# Place in a task → file in kbench_build/runtime. The same bytes in every task.
SHIPPED: Mapping[str, str] = {
    "environment/check_git_changes.sh": "check_git_changes.sh",
    "environment/seal_git_history.sh": "seal_git_history.sh",
    "solution/solve.sh": "solve.sh",
    "tests/junit_compare.py": "junit_compare.py",
    "tests/kotlin_logs_collector.sh": "kotlin_logs_collector.sh",
    "tests/test.sh": "test.sh",
    "tests/verify_checkout.py": "verify_checkout.py",
}
