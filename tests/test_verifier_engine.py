"""The shipped verifier in real containers: the shared one of a runner like Harbor, and our own."""

import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbench_build.model.jobs import Job
from tests import engine_box, verifier_image
from tests.test_verifier_sabotage import WHILE_RUNNING
from tests.verifier_box import WORKDIR, make_box

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """This machine's bash, git and python3, and the little project at its base."""
    folder = tmp_path_factory.mktemp("verifier-image")
    with verifier_image.built(make_box(folder / "box"), folder) as name:
        yield name


class Shared:
    """A container as runners hold it: one idle main process, everything else executed in it."""

    def __init__(self, image: str, folder: Path, **options: Any) -> None:
        self.api = engine_box.engine._api.client
        idle = options.pop("command", ["sh", "-c", "sleep infinity"])
        host = self.api.create_host_config(network_mode="none", **options)
        made = self.api.create_container(image, idle, host_config=host)
        self.id = made["Id"]
        self.folder = folder

    def __enter__(self) -> "Shared":
        self.api.start(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        self.api.remove_container(self.id, force=True)

    def do(self, script: str, *, detach: bool = False) -> str:
        made = self.api.exec_create(self.id, ["bash", "-c", script])
        said = self.api.exec_start(made["Id"], detach=detach)
        return "" if detach else said.decode("utf-8", "replace")

    def running(self) -> bool:
        return bool(self.api.inspect_container(self.id)["State"]["Running"])


LEFT_BEHIND = (
    'exec setsid bash -c \'trap "" TERM HUP INT; while :; do'
    " echo 1 > /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json;"
    f" echo TESTS=[] > /{WORKDIR}/app/src/test/CalcTest.py; done'"
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"init": True, "command": ["sleep", "infinity"]},
        {"command": ["bash", "-c", "sleep 999;:"]},
    ],
    ids=["a shell", "an init process", "a child of the shell"],
)
def test_what_an_agent_left_running_is_ended_and_the_container_lives(
    image: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    with Shared(image, tmp_path, **options) as container:
        container.do(LEFT_BEHIND, detach=True)
        container.do("setsid bash -c 'sleep 1000 & sleep 1000 & exit'", detach=True)
        time.sleep(0.3)
        said = container.do("bash /tests/test.sh > /logs/verifier/test-stdout.txt 2>&1; echo $?")
        assert said.strip() == "0"
        time.sleep(0.5)
        assert container.running()
        left = container.do("cat /logs/verifier/reward.txt; ls /logs/verifier")
        assert left.split() == ["0", "report.json", "reports", "reward.txt", "test-stdout.txt"]
        assert container.do("bash /solution/solve.sh && bash /tests/test.sh >&2; echo $?")
        assert container.do("cat /logs/verifier/reward.txt") == "1\n"
        assert container.running()


@pytest.mark.parametrize("deed", WHILE_RUNNING)
def test_a_program_under_test_gains_nothing_in_our_engine(image: str, deed: str) -> None:
    memory = (
        "try:\n    open('/proc/1/mem', 'r+b')\n    print('the memory is open')\n"
        "except OSError:\n    pass\n"
    )
    script = f"cat - core/src/main/words.py > /tmp/w <<'END'\n{memory}{WHILE_RUNNING[deed]}\nEND\n"
    script += "cp /tmp/w core/src/main/words.py; exec bash /tests/test.sh"
    job = Job(
        name="verifier-test",
        image=image,
        command=("bash", "-c", script),
        timeout_sec=60,
        workdir=f"/{WORKDIR}",
        outputs=("/logs/verifier",),
    )
    result = engine_box.engine(job)
    assert (result.status, result.exit_code) == ("exited", 0), result.output
    assert "the memory is open" not in result.output
    with tarfile.open(fileobj=io.BytesIO(result.outputs["/logs/verifier"])) as tar:
        names = {Path(name).name: name for name in tar.getnames()}
        assert "reward.json" not in names
        reward = tar.extractfile(names["reward.txt"])
        assert reward is not None
        assert reward.read() == b"0\n"
