"""A dataset in the older shape, hardened: what scored 1 without a solution scores 0."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbench_build.cli import cli
from kbench_build.rim.store import Store
from tests import engine_box, verifier_image
from tests.foreign_kit import OFFLINE_DOCKERFILE, TASKS, Foreign, make
from tests.graph_kit import DODO, doit, write
from tests.test_harden import PUT_BACK, READ_PATHS, TIDYING

pytestmark = pytest.mark.engine

TASK = TASKS[1]
NAMESPACE = f"{engine_box.NAMESPACE}-harden"
IMAGE = f"{engine_box.NAMESPACE}/harden-tools:1"
# What validation says of the older shape stands; here the engine says who gets a reward.
SETTINGS = f"""[dataset]
namespace = "{NAMESPACE}"

[[suppress]]
rule = "expected/*"
reason = "The older shape lists as new what only stopped compiling."

[[suppress]]
rule = "verifier/*"
reason = "What is wrong with this verifier is to be seen in its rewards."
"""
# What the seal, the check of changes and the older scripts call beside what the verifier needs.
MORE = (
    "basename cmp comm cut find grep id mktemp printf readlink rmdir sed sort stat tail wc xargs "
    "uname true false chown"
)


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Foreign]:
    """The task whose hidden test doesn't compile, on a base of this machine's own programs."""
    text = f"FROM scratch\nADD root.tar /\nRUN {verifier_image.LINK_PYTHON}\n"
    programs = verifier_image.programs(f"{verifier_image.PROGRAMS} {MORE}")
    context = {"Dockerfile": text.encode(), "root.tar": programs}
    built = engine_box.engine.build(engine_box.spec(tmp_path, text, image=IMAGE, context=context))
    assert built.status == "built", built
    made = make(
        tmp_path / "older",
        tasks=(TASK,),
        namespace=NAMESPACE,
        # This machine's git makes no such folder without its templates.
        base_dockerfile=OFFLINE_DOCKERFILE.format(image=IMAGE)
        + "RUN mkdir -p /home/adder/.git/info\n",
        tooling="RUN command -v python3 || apt-get install -y python3 || true",
    )
    made.edit("environment/prepare.sh", "git reset", f"{TIDYING}git reset", task=TASK)
    made.edit("tests/test.sh", "git apply", f"{READ_PATHS}{PUT_BACK}git apply", task=TASK)
    write(made.root / "dodo.py", DODO)
    write(made.root / "kbench.toml", SETTINGS)
    yield made
    client = engine_box.engine._api.client
    for name in [
        tag for tag in engine_box.engine.images() if tag.startswith((f"{NAMESPACE}/", IMAGE))
    ]:
        client.remove_image(name, force=True)


def rewards(made: Foreign) -> dict[str, float]:
    """The last selfcheck's rewards, by kind of run."""
    report = Store(made.root).read("selfcheck", TASK)
    assert report is not None
    return {run["kind"]: run["reward"] for run in report.data["results"]}


def test_a_hardened_task_gives_nothing_for_nothing_and_1_for_the_fix(foreign: Foreign) -> None:
    doit(foreign.root, "selfcheck", code=1)
    assert rewards(foreign) == {"nop": 1.0, "oracle": 1.0}
    arguments = ["--root", str(foreign.root), "--upstream", str(foreign.upstream.parent.parent)]
    done = CliRunner().invoke(cli, ["harden", "--yes", *arguments])
    assert done.exit_code == 0, done.output
    doit(foreign.root, "seal", "selfcheck")
    assert rewards(foreign) == {"nop": 0.0, "oracle": 1.0}
    checked = CliRunner().invoke(cli, ["harden", "--check", *arguments])
    assert (checked.exit_code, checked.output) == (0, "1 nothing to do\n")
