"""Where a task's base commit is found, when it is looked for anew, what a hostile one can do."""

import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kbench_build.errors import KbenchError
from kbench_build.model import Upstream
from kbench_build.plan import Plan
from kbench_build.rim.upstream import Holder, Want, fetched, holders, opened
from kbench_build.rules.base_inputs import heads_digest
from kbench_build.steps.validate import findings_of
from tests.defects.kit import UPSTREAM, commit, git, small
from tests.defects.patches import at_hand
from tests.graph_kit import DODO, counts, doit, write
from tests.samples import TASK

LAYOUTS = ("acme/adder.git", "acme/adder", "acme_adder.git", "acme_adder", "adder.git", "adder")


def repository(folder: Path) -> str:
    """A repository of one commit, which is returned."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    return commit(folder, {"a.txt": "a\n", "src/Over.kt": "class Over\n"}, "One")


def bundle(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    git(source, "bundle", "create", "-q", str(target), "HEAD", "main")


def mirror(source: Path, target: Path) -> None:
    subprocess.run(["git", "clone", "-q", "--mirror", source, target], check=True, timeout=60)


def held(
    root: Path, base: str, *, mirrors: str = "mirrors", name: str = "adder", **more: bool
) -> Holder:
    upstream = Upstream(owner="acme", name=name, url="https://example.invalid/acme/adder")
    want = Want(task=TASK, commit=base, upstream=upstream)
    return holders(root, [want], mirrors=mirrors, **more)[TASK]


@contextmanager
def without_git() -> Iterator[None]:
    """No program can be started by its name."""
    path = os.environ["PATH"]
    os.environ["PATH"] = "/nowhere"
    try:
        yield
    finally:
        os.environ["PATH"] = path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mirror_is_found_under_each_name(tmp_path: Path, layout: str) -> None:
    base = repository(tmp_path / "up")
    mirror(tmp_path / "up", tmp_path / "mirrors" / layout)
    assert held(tmp_path, base).name == f"mirrors/{layout}"


@pytest.mark.parametrize("layout", ["acme/adder.bundle", "acme_adder.bundle", "adder.bundle"])
def test_a_bundle_is_found_too(tmp_path: Path, layout: str) -> None:
    base = repository(tmp_path / "up")
    bundle(tmp_path / "up", tmp_path / "mirrors" / layout)
    found = held(tmp_path, base)
    assert found.name == f"mirrors/{layout}"
    with opened(tmp_path, found) as commit_:
        assert commit_
        assert list(commit_.files()) == ["a.txt", "src/Over.kt"]


def test_a_checkout_and_a_folder_elsewhere_serve(tmp_path: Path) -> None:
    base = repository(tmp_path / "elsewhere/acme/adder")
    (tmp_path / "root").mkdir()
    assert held(tmp_path / "root", base, mirrors="../elsewhere").source
    assert held(tmp_path / "root", base, mirrors=str(tmp_path / "elsewhere")).source


def test_the_first_that_holds_the_commit_serves(tmp_path: Path) -> None:
    repository(tmp_path / "mirrors/acme/adder")
    other = repository(tmp_path / "mirrors/adder")
    later = commit(tmp_path / "mirrors/adder", {"a.txt": "b\n"}, "Two")
    assert held(tmp_path, other).name == "mirrors/acme/adder"
    assert held(tmp_path, later).name == "mirrors/adder"


@pytest.mark.parametrize("name", ["../up", "..", "a/b", "", "-x", "a\nb", "x" * 300])
def test_a_name_that_leads_elsewhere_names_nothing(tmp_path: Path, name: str) -> None:
    base = repository(tmp_path / "up")
    (tmp_path / "mirrors").mkdir()
    assert held(tmp_path, base, name=name).source is None


@pytest.mark.parametrize("base", ["main", "HEAD", "", "a" * 39, "--all", "A" * 40])
def test_what_is_no_commit_id_is_held_by_nobody(tmp_path: Path, base: str) -> None:
    repository(tmp_path / "mirrors/acme/adder")
    assert held(tmp_path, base) == Holder(commit="")


def test_no_git_is_started_while_nothing_changed(tmp_path: Path) -> None:
    base = repository(tmp_path / "up")
    mirror(tmp_path / "up", tmp_path / "mirrors/acme/adder.git")
    bundle(tmp_path / "up", tmp_path / "mirrors/adder.bundle")
    held(tmp_path, base), held(tmp_path, "b" * 40)
    with without_git():
        assert held(tmp_path, base).source
        assert held(tmp_path, "b" * 40).source is None
        assert held(tmp_path, "b" * 40).problem == ""
        assert held(tmp_path, "c" * 40).problem


def test_a_commit_that_a_mirror_gets_later_is_found(tmp_path: Path) -> None:
    repository(tmp_path / "up")
    mirror(tmp_path / "up", tmp_path / "mirrors/adder.git")
    later = commit(tmp_path / "up", {"a.txt": "b\n"}, "Two")
    assert held(tmp_path, later).source is None
    git(tmp_path / "mirrors/adder.git", "fetch", "-q", str(tmp_path / "up"), "main")
    assert held(tmp_path, later).source


def test_a_bundle_that_is_made_anew_is_read_anew(tmp_path: Path) -> None:
    repository(tmp_path / "up")
    bundle(tmp_path / "up", tmp_path / "mirrors/adder.bundle")
    later = commit(tmp_path / "up", {"a.txt": "b\n"}, "Two")
    assert held(tmp_path, later).source is None
    bundle(tmp_path / "up", tmp_path / "mirrors/adder.bundle")
    assert held(tmp_path, later).source
    assert len(list((tmp_path / ".kbench/upstream").glob("*.git"))) == 1


def test_a_broken_bundle_is_a_reason_and_asked_again(tmp_path: Path) -> None:
    base = repository(tmp_path / "up")
    broken = tmp_path / "mirrors/adder.bundle"
    bundle(tmp_path / "up", broken)
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-40])
    found = held(tmp_path, base)
    assert (found.source, "\n" in found.problem) == (None, False)
    assert found.problem.startswith("mirrors/adder.bundle: can't be read: ")
    broken.write_bytes(whole)
    assert held(tmp_path, base).source


def test_a_damaged_index_of_what_is_known_is_an_empty_one(tmp_path: Path) -> None:
    base = repository(tmp_path / "mirrors/adder")
    known = tmp_path / ".kbench/upstream/known.json"
    known.parent.mkdir(parents=True)
    for content in (b"\xff", b"[]", b'{"mirrors/adder": 3}', b'{"mirrors/adder": {"held": 1}}'):
        known.write_bytes(content)
        assert held(tmp_path, base).source


def test_a_hostile_mirror_is_not_obeyed(tmp_path: Path) -> None:
    base = repository(tmp_path / "mirrors/acme/adder")
    folder = tmp_path / "mirrors/acme/adder/.git"
    marker = tmp_path / "obeyed"
    run = f"touch {marker}"
    keys = ("core.fsmonitor", "core.pager", "core.editor", "filter.x.clean", "filter.x.smudge")
    for key in (*keys, "diff.external", "uploadpack.packObjectsHook"):
        git(folder, "config", key, run)
    (folder / "info/attributes").write_text("* filter=x\n")
    for hook in ("post-index-change", "reference-transaction", "post-checkout"):
        (folder / "hooks").mkdir(exist_ok=True)
        (folder / "hooks" / hook).write_text(f"#!/bin/sh\n{run}\n")
        (folder / "hooks" / hook).chmod(0o755)
    patch = b"diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n"
    with opened(tmp_path, held(tmp_path, base)) as commit_:
        assert commit_
        assert commit_.apply(patch).reason == ""
        assert commit_.files()
    assert not marker.exists()


def test_nothing_is_written_to_a_mirror(tmp_path: Path) -> None:
    base = repository(tmp_path / "mirrors/acme/adder")
    before = sorted(str(p) for p in (tmp_path / "mirrors").rglob("*"))
    patch = b"diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n"
    with opened(tmp_path, held(tmp_path, base)) as commit_:
        assert commit_
        assert list(commit_.apply(patch).changed) == ["a.txt"]
    assert sorted(str(p) for p in (tmp_path / "mirrors").rglob("*")) == before


# What it does to a task's report.


def inputs(root: Path) -> str:
    return Plan(root).steps["validate"].inputs(TASK)


def test_a_task_is_checked_again_when_its_upstream_appears(tmp_path: Path) -> None:
    sample = at_hand(tmp_path)
    shutil.move(tmp_path / UPSTREAM, tmp_path / "away")
    without = inputs(sample.root)
    assert inputs(sample.root) == without
    shutil.move(tmp_path / "away", tmp_path / UPSTREAM)
    with_it = inputs(sample.root)
    assert with_it != without
    commit(tmp_path / UPSTREAM / "acme/adder", {"more.txt": "x"}, "More")
    assert inputs(sample.root) == with_it


def test_what_wasn_t_tried_is_said_once_with_how_to_mend_it(tmp_path: Path) -> None:
    sample = small(tmp_path)
    (said,) = [s for s in sample.validate().data["not_checked"] if "test.sh" not in s]
    assert "upstream.mirrors" in said
    assert "--upstream" in said
    at_hand(tmp_path / "two")
    plan = Plan(tmp_path / "two/dataset")
    report = plan.run("validate", TASK)
    assert not [s for s in report.data["not_checked"] if "upstream" in s]


def test_bundles_of_the_bases_serve(tmp_path: Path) -> None:
    sample = small(tmp_path)
    bundle(tmp_path / UPSTREAM / "acme/adder", sample.root / ".kbench/inputs/adder/up.bundle")
    plan = Plan(sample.root)
    assert not [s for s in plan.run("validate", TASK).data["not_checked"] if "upstream" in s]
    assert plan.holds("validate", TASK)


def test_a_base_commit_in_a_script_serves_where_task_toml_has_none(tmp_path: Path) -> None:
    sample = at_hand(tmp_path)
    text = (sample.task / "task.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("base_commit")]
    sample.write("task.toml", "\n".join(lines) + "\n")
    sample.write("tests/test.patch", (sample.task / "tests/test.patch").read_bytes() * 2)
    report = Plan(sample.root).run("validate", TASK)
    assert "patch/base" in {f.rule for f in findings_of(report)}


def test_a_plain_task_may_check_out_the_fixed_commit(tmp_path: Path) -> None:
    sample = at_hand(tmp_path, form="plain")
    fixed = git(tmp_path / UPSTREAM / "acme/adder", "rev-parse", "HEAD").decode().strip()
    sample.write("environment/Dockerfile", f"FROM a:1\nRUN git checkout {fixed}\n")
    plan = Plan(sample.root)
    assert plan.survey.tasks[TASK].checked_out == ""
    source = '[metadata.source]\nrepository_owner = "acme"\nrepository_name = "adder"\n'
    sample.edit("task.toml", "[metadata]", f"{source}\n[metadata]")
    for report in (sample.validate(), Plan(sample.root).run("validate", TASK)):
        assert not [f for f in findings_of(report) if f.rule.startswith("patch/")]
    base = git(tmp_path / UPSTREAM / "acme/adder", "rev-list", "--max-parents=0", "HEAD").decode()
    sample.edit("task.toml", source, f'{source}base_commit = "{base.strip()}"\n')
    sample.edit("solution/fix.patch", "left - right", "left * right")
    said = findings_of(Plan(sample.root).run("validate", TASK))
    assert "patch/base" in {f.rule for f in said}


def test_a_partial_clone_says_that_it_is_one(tmp_path: Path) -> None:
    sample = at_hand(tmp_path)
    whole = tmp_path / "whole"
    shutil.move(tmp_path / UPSTREAM / "acme/adder", whole)
    git(whole, "config", "uploadpack.allowFilter", "true")
    options = ["--bare", "--filter=blob:none", f"file://{whole}"]
    target = tmp_path / UPSTREAM / "acme/adder.git"
    subprocess.run(["git", "clone", "-q", *options, target], check=True, timeout=60)
    report = Plan(sample.root).run("validate", TASK)
    assert any("lacks files" in said for said in report.data["not_checked"])
    assert not [f for f in findings_of(report) if f.rule.startswith("patch/")]


# By URL.


@contextmanager
def served(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, as an old server without git's own protocol does."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has
        pass


class Smart(http.server.BaseHTTPRequestHandler):
    """Serves repositories below `projects` through git's own program."""

    projects: Path

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.projects),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"],
            # It says so with its exit code too when it answers with an error.
            check=False,
            input=body,
            env=environment,
            capture_output=True,
            timeout=60,
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split(" ")[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has
        pass


def test_one_commit_is_fetched_by_url_and_kept(tmp_path: Path) -> None:
    older = repository(tmp_path / "projects/up")
    base = commit(tmp_path / "projects/up", {"more.txt": "x"}, "Two")
    git(tmp_path / "projects/up", "config", "uploadpack.allowAnySHA1InWant", "true")
    handler = type("Here", (Smart,), {"projects": tmp_path / "projects"})
    with served(handler) as address:
        url = f"{address}/up/.git"
        assert fetched(tmp_path, url, base)
        assert fetched(tmp_path, url, "d" * 40) is None
    # Nobody answers any more.
    source = fetched(tmp_path, url, base)
    assert source
    assert (source.path / "shallow").read_text() == f"{base}\n"
    assert not git(source.path, "cat-file", "--batch-all-objects", "--batch-check").count(
        older.encode()
    )
    with opened(tmp_path, Holder(commit=base, source=source)) as commit_:
        assert commit_
        assert set(commit_.files()) == {"a.txt", "more.txt", "src/Over.kt"}


def test_a_server_that_gives_everything_or_nothing_serves(tmp_path: Path) -> None:
    base = repository(tmp_path / "up")
    git(tmp_path / "up", "update-server-info")
    with served(partial(Quiet, directory=str(tmp_path / "up/.git"))) as address:
        assert fetched(tmp_path, f"{address}/", base)
        assert fetched(tmp_path, f"{address}/", "d" * 40) is None
        with pytest.raises(KbenchError, match=r"can't be fetched: .*upstream\.mirrors"):
            fetched(tmp_path, f"{address}/nothing", base)


def test_fetching_is_for_a_task_whose_commit_isn_t_at_hand(tmp_path: Path) -> None:
    base = repository(tmp_path / "mirrors/adder")
    assert held(tmp_path, base, fetch=True).name == "mirrors/adder"
    assert held(tmp_path, "b" * 40, fetch=True).name == "https://example.invalid/acme/adder"
    assert held(tmp_path, "b" * 40).name == ""


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch obeyed'",
        "file:///etc",
        "ssh://example.invalid/x",
        "git@example.invalid:x/y",
        "--upload-pack=touch",
        "/etc",
        "http://",
        "https://a\nb",
        "https://-x/y",
    ],
)
def test_only_http_is_fetched_from(tmp_path: Path, url: str) -> None:
    with pytest.raises(KbenchError, match="only http and https") as error:
        fetched(tmp_path, url, "a" * 40)
    assert "\n" not in str(error.value)
    assert not (tmp_path / ".kbench").exists()


def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(KbenchError, match="no end within 1 s"):
            fetched(tmp_path, url, "a" * 40, timeout=1)


def test_a_fetch_that_fails_is_one_line_for_the_task(tmp_path: Path) -> None:
    sample = small(tmp_path)
    (sample.root / "kbench.toml").write_text("[upstream]\nfetch = true\n")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    sample.edit("task.toml", 'https://example.org/acme/adder"', f'http://127.0.0.1:{port}/x"')
    with pytest.raises(KbenchError, match="can't be fetched") as error:
        Plan(sample.root).run("validate", TASK)
    assert "\n" not in str(error.value)


def test_a_run_makes_the_history_first_and_the_next_has_nothing_to_do(tmp_path: Path) -> None:
    sample = small(tmp_path)
    upstream = tmp_path / UPSTREAM / "acme/adder"
    bundle(upstream, tmp_path / "up.bundle")
    heads = heads_digest(
        git(upstream, "bundle", "list-heads", str(tmp_path / "up.bundle")).decode()
    )
    write(
        sample.root / "bases/adder/inputs.toml",
        '[[input]]\nfile = "up.bundle"\n'
        f"command = ['sh', '-c', 'cp {tmp_path}/up.bundle \"$KBENCH_OUTPUT\"']\n"
        f'bases = ["jdk17"]\ngit_heads = "{heads}"\n',
    )
    write(sample.root / "dodo.py", DODO)
    steps = ("validate", "base_inputs")
    assert counts(doit(sample.root, *steps).stdout) == {"done": 3}
    report = json.loads((sample.root / f".kbench/validate/{TASK}.json").read_text().splitlines()[1])
    assert not [said for said in report["not_checked"] if "upstream" in said]
    assert counts(doit(sample.root, *steps).stdout) == {"up to date": 3}
    assert counts(doit(sample.root, "validate").stdout) == {"up to date": 2}
