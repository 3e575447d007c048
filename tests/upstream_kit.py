"""An upstream repository that a test grows, for tests of mining."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

DAY = 86_400
START = 1_700_000_000


@dataclass
class Upstream:
    """A repository that the test grows; every commit has an author's and a committer's time."""

    root: Path
    now: int = START

    def git(self, *argv: str, committer: str = "Mona", authored: int = 0) -> str:
        mail = committer if "@" in committer else f"{committer.lower()}@example.org"
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_COMMITTER_NAME": committer,
            "GIT_COMMITTER_EMAIL": mail,
            "GIT_AUTHOR_DATE": f"{authored or self.now} +0000",
            "GIT_COMMITTER_DATE": f"{self.now} +0000",
        }
        done = subprocess.run(
            ["git", *argv], cwd=self.root, env=env, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, name: str, message: str, *, authored: int = 0, text: str = "") -> str:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        with (self.root / name).open("a", encoding="utf-8") as file:
            file.write(text or f"{message}\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message, authored=authored)
        return self.git("rev-parse", "HEAD")

    def later(self, seconds: int = DAY) -> None:
        self.now += seconds

    def merge(self, branch: str, message: str) -> str:
        self.git("merge", "-q", "--no-ff", "-m", message, *branch.split())
        return self.git("rev-parse", "HEAD")


def new_upstream(folder: Path) -> Upstream:
    """A repository without a commit at `folder/upstream`."""
    root = folder / "upstream"
    root.mkdir()
    repository = Upstream(root)
    repository.git("init", "-q", "-b", "main")
    return repository
