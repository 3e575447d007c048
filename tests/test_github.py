"""Asking GitHub's API, against a real server on loopback that speaks it and fails as it may."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbench_build.errors import KbenchError
from kbench_build.model.repository import Commit
from kbench_build.rim.github import GitHub, Patience, server_and_token
from kbench_build.rules.issue_links import Issue
from kbench_build.rules.merges import Pull
from kbench_build.steps.ask_github import Asking, known
from tests.forge_kit import PRIMARY, SECONDARY, Asked, Fault, Forge, Reply, forge, message
from tests.upstream_kit import Upstream, new_upstream

QUICK = Patience(longest=5, secondary=0.05, failure=0.02)
TOKEN = "ghp_of_nobody"


@pytest.fixture
def server() -> Iterator[Forge]:
    with forge() as made:
        for number in range(1, 6):
            made.pull(number)
        yield made


class Run:
    """One run's questions, and what it had to say."""

    def __init__(self, server: Forge, folder: Path, *, token: str = "", **options: Any) -> None:
        self.said: list[str] = []
        client = GitHub(server.url, token, announce=self.said.append, patience=QUICK)
        self.asking = Asking(client, folder, "acme/text", announce=self.said.append, **options)

    @property
    def problems(self) -> list[str]:
        return self.asking.problems

    def pulls(self, *commits: Commit, since: int | None = None) -> list[int]:
        found = self.asking.pulls(commits, since)
        self.asking.end()
        return sorted(pull.number for pull in found)


def commit(message: str, digit: str, parents: int = 1) -> Commit:
    return Commit(
        id=digit * 40,
        parents=tuple("0" * 40 for _ in range(parents)),
        tree="",
        author="Ada",
        author_email="ada@example.org",
        authored=0,
        committer="Ada",
        committer_email="ada@example.org",
        committed=0,
        message=message,
        files=(),
    )


def on(path: str, *replies: Reply | None) -> Fault:
    """The replies one after another to what begins with `path`, and then the usual ones."""
    left = list(replies)

    def fault(asked: Asked, _: int) -> Reply | None:
        return left.pop(0) if asked.short.startswith(path) and left else None

    return fault


def always(path: str, reply: Reply) -> Fault:
    return lambda asked, _: reply if asked.short.startswith(path) else None


def test_every_page_is_read_and_only_what_is_needed_is_kept(server: Forge, tmp_path: Path) -> None:
    run = Run(server, tmp_path)
    assert run.pulls() == [1, 2, 3, 4, 5]
    assert server.paths == ["pulls?1", "pulls?2", "pulls?3"]
    assert run.problems == []
    kept = (tmp_path / "github" / "pulls.jsonl").read_text(encoding="utf-8")
    assert "none of our business" not in kept
    assert [p.number for p in known(tmp_path).pulls.pulls] == [5, 4, 3, 2, 1]


def test_pages_before_the_window_are_not_asked_for(server: Forge, tmp_path: Path) -> None:
    for pull in server.pulls["acme/text"]:
        pull["updated_at"] = f"202{pull['number']}-06-01T00:00:00Z"
    since = 1_700_000_000  # November 2023
    assert Run(server, tmp_path).pulls(since=since) == [2, 3, 4, 5]
    assert server.paths == ["pulls?1", "pulls?2"]


def test_the_token_goes_to_the_server_and_nowhere_else(server: Forge, tmp_path: Path) -> None:
    server.token = TOKEN
    run = Run(server, tmp_path, token=TOKEN)
    assert run.pulls() == [1, 2, 3, 4, 5]
    server.token = "another"
    again = Run(server, tmp_path, token=TOKEN)
    again.pulls()
    written = b"".join(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
    assert TOKEN not in written.decode()
    assert TOKEN not in repr([run.said, again.said, again.problems])
    assert "401: Bad credentials: see to the token in GITHUB_TOKEN or GH_TOKEN" in again.problems[0]


@pytest.mark.parametrize("status", [403, 429])
def test_retry_after_is_obeyed(server: Forge, tmp_path: Path, status: int) -> None:
    server.fault = on("pulls?2", message(status, "slow down", Retry_After="1"))
    began = time.monotonic()
    run = Run(server, tmp_path)
    assert run.pulls() == [1, 2, 3, 4, 5]
    assert time.monotonic() - began >= 1
    assert server.replies == [200, status, 200, 200]
    assert "waiting 1 s, as GitHub asks" in run.said


@pytest.mark.parametrize("status", [403, 429])
def test_a_secondary_limit_is_waited_for(server: Forge, tmp_path: Path, status: int) -> None:
    server.fault = on("pulls?1", message(status, SECONDARY))
    assert Run(server, tmp_path).pulls() == [1, 2, 3, 4, 5]
    assert server.replies == [status, 200, 200, 200]


@pytest.mark.parametrize("status", [403, 429])
def test_a_limit_that_ends_soon_is_waited_for(server: Forge, tmp_path: Path, status: int) -> None:
    reset = str(int(time.time()))
    server.fault = on("pulls?1", message(status, PRIMARY, X_RateLimit_Reset=reset))
    assert Run(server, tmp_path).pulls() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "limit",
    [
        {"X_RateLimit_Reset": str(int(time.time()) + 3_000)},
        {"Retry_After": "86400"},
        {"Retry_After": "Fri, 31 Dec 2100 23:59:59 GMT"},
    ],
)
@pytest.mark.parametrize("status", [403, 429])
def test_a_limit_that_is_far_off_ends_the_questions(
    server: Forge, tmp_path: Path, status: int, limit: dict[str, str]
) -> None:
    server.fault = always("pulls?2", message(status, PRIMARY, **limit))
    run = Run(server, tmp_path)
    assert run.pulls(commit("Change 1 (#1)", "a")) == [4, 5]
    assert server.replies == [200, status]
    (problem,) = run.problems
    assert "the limit of requests is used up until" in problem
    assert "it goes on from here" in problem


def test_a_run_that_broke_off_goes_on_where_it_was(server: Forge, tmp_path: Path) -> None:
    reset = str(int(time.time()) + 3_000)
    server.fault = always("pulls?3", message(403, PRIMARY, X_RateLimit_Reset=reset))
    assert Run(server, tmp_path).pulls() == [2, 3, 4, 5]
    server.asked.clear()
    server.fault = lambda _asked, _n: None
    assert Run(server, tmp_path).pulls() == [1, 2, 3, 4, 5]
    assert server.paths == ["pulls?3"]


def test_a_run_that_was_killed_in_a_line_goes_on_too(server: Forge, tmp_path: Path) -> None:
    run = Run(server, tmp_path)
    run.asking.pulls((), None)  # and no end
    path = tmp_path / "github" / "answers.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    server.asked.clear()
    Run(server, tmp_path).asking.pulls((), None)
    assert server.paths == ["pulls?3"]
    # And what came after the broken line isn't lost with it.
    assert Run(server, tmp_path).pulls() == [1, 2, 3, 4, 5]
    assert server.paths == ["pulls?3"]


def test_what_was_had_is_only_sent_again_where_it_changed(server: Forge, tmp_path: Path) -> None:
    Run(server, tmp_path).pulls()
    server.replies.clear()
    server.pulls["acme/text"][0]["title"] = "Another"
    run = Run(server, tmp_path)
    run.pulls()
    assert server.replies == [304, 304, 200]
    assert "Another" in {pull.title for pull in known(tmp_path).pulls.pulls}


def test_what_broke_off_long_ago_is_confirmed(server: Forge, tmp_path: Path) -> None:
    Run(server, tmp_path).asking.pulls((), None)
    path = tmp_path / "github" / "answers.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    old = [json.dumps({**line, "at": line["at"] - 90_000}) for line in lines]
    path.write_text("\n".join(old), encoding="utf-8")
    server.replies.clear()
    Run(server, tmp_path).pulls()
    assert server.replies == [304, 304, 304]


def test_a_failure_of_the_server_is_tried_again(server: Forge, tmp_path: Path) -> None:
    server.fault = on("pulls?2", Reply(status=502, body=b"<html>"), Reply(drop=True))
    run = Run(server, tmp_path)
    assert run.pulls() == [1, 2, 3, 4, 5]
    assert server.replies == [200, 502, 0, 200, 200]
    assert run.problems == []


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=502, body=b"<html>"), "didn't answer: too many 502 error responses"),
        (Reply(body=b'[{"number": 1'), "the answer is no JSON"),
        (Reply(body=b"<html>"), "the answer is no JSON"),
        (Reply(body=b"[" * 100_000), "the answer is no JSON"),
        (Reply(drop=True), "didn't answer: Remote end closed connection without response"),
        (message(422, "No\x1b[31m such\n page"), "422: No\\x1b[31m such page"),
        (message(403, "Resource protected by organization SAML enforcement."), "403: Resource"),
        (Reply(status=302, headers={"Location": "https://example.org/"}), "302: no reason given"),
    ],
)
def test_a_page_that_can_not_be_had_is_named_and_the_rest_is_used(
    server: Forge, tmp_path: Path, reply: Reply, reason: str
) -> None:
    server.fault = always("pulls?2", reply)
    run = Run(server, tmp_path)
    named = [commit("Change 3 (#3)", "a"), commit("Change 9 (#9)", "b")]
    # The list lacks 2 and 3; what a commit names is asked for alone.
    assert run.pulls(*named) == [1, 3, 4, 5]
    assert run.problems[0].startswith(f"{server.url}/repos/acme/text/pulls?")
    assert f"&page=2: {reason}" in run.problems[0]
    assert "pulls/9: 404: there is none, or the token may not see it" in run.problems[1]


@pytest.mark.parametrize(
    ("headers", "page"),
    [
        ({"Retry-After": "soon"}, "pulls?1"),
        ({"X-RateLimit-Remaining": "many", "X-RateLimit-Limit": "1"}, "pulls?1"),
        ({"X-RateLimit-Reset": "inf"}, "pulls?1"),
        ({"Link": "<<>;;,;rel"}, "pulls?1"),
        ({"Link": '<http://elsewhere.example.org/x?page=7>; rel="next"'}, "pulls?1"),
    ],
)
@pytest.mark.parametrize("status", [200, 403, 429, 500])
def test_odd_headers_are_no_crash(
    server: Forge, tmp_path: Path, status: int, headers: dict[str, str], page: str
) -> None:
    server.fault = always(page, Reply(status=status, body=b"[]", headers=headers))
    run = Run(server, tmp_path)
    run.pulls()
    assert all("\n" not in problem for problem in run.problems)


def test_pages_that_lead_in_a_circle_are_read_once(server: Forge, tmp_path: Path) -> None:
    link = '</repos/acme/text/pulls?page=1>; rel="next"'
    server.fault = always("pulls", Reply(body=b"[]", headers={"Link": link}))
    assert Run(server, tmp_path).pulls() == []
    assert len(server.asked) == 2


def test_odd_lines_among_the_answers_are_passed_over(server: Forge, tmp_path: Path) -> None:
    Run(server, tmp_path).asking.pulls((), None)
    path = tmp_path / "github" / "answers.jsonl"
    (first, *_) = path.read_bytes().splitlines()
    value = json.loads(first)
    odd = [{**value, "url": ["x"]}, {**value, "etag": 7}, {**value, "value": 7}, {"x": 1}, 7, None]
    path.write_text("\n".join(json.dumps(each) for each in odd), encoding="utf-8")
    Run(server, tmp_path).pulls()


def test_what_was_known_stands_in_for_what_can_not_be_had(server: Forge, tmp_path: Path) -> None:
    Run(server, tmp_path).pulls()
    server.fault = always("pulls?2", Reply(status=500))
    server.asked.clear()
    run = Run(server, tmp_path)
    assert run.pulls(commit("Change 3 (#3)", "a")) == [1, 2, 3, 4, 5]
    assert len(run.problems) == 1
    assert "pulls/3" not in server.paths


def test_a_server_that_is_down_is_left_alone_after_three_failures(
    server: Forge, tmp_path: Path
) -> None:
    server.fault = always("", Reply(status=503))
    run = Run(server, tmp_path)
    commits = [commit(f"Change {n} (#{n})", "a") for n in range(100, 120)]
    assert run.pulls(*commits) == []
    assert len(server.replies) == 12  # three questions, four attempts each
    assert any("503" in problem for problem in run.problems)


def test_a_repository_that_is_not_there_is_named(server: Forge, tmp_path: Path) -> None:
    del server.pulls["acme/text"]
    run = Run(server, tmp_path)
    assert run.pulls() == []
    assert "404: there is none, or the token may not see it" in run.problems[0]


def test_a_change_of_several_commits_is_asked_for_its_count(server: Forge, tmp_path: Path) -> None:
    server.pull(6, merge_commit_sha="a" * 40, commits=3)
    server.pull(7, merge_commit_sha="b" * 40, commits=2)
    server.pull(8, merge_commit_sha="c" * 40, commits=4)
    commits = [commit("Three", "a"), commit("Two (#7)", "b"), commit("Merge", "c", parents=2)]
    run = Run(server, tmp_path)
    found = {pull.number: pull for pull in run.asking.pulls(commits, None)}
    assert found[6] == Pull(
        number=6,
        title="Change 6",
        author="ada",
        created=1_704_067_200,
        merged=1_704_153_600,
        url="https://github.com/acme/text/pull/6",
        merge_commit="a" * 40,
        commits=3,
    )
    assert server.paths[-1] == "pulls/6"
    assert [found[7].commits, found[8].commits] == [0, 0]


def test_an_answer_of_another_shape_is_none(server: Forge, tmp_path: Path) -> None:
    body = json.dumps([7, None, {"number": "x"}, {"number": 3, "labels": 5, "user": []}]).encode()
    server.fault = always("pulls?1", Reply(body=body))
    assert Run(server, tmp_path).pulls() == []


def test_issues_are_asked_for_wherever_they_are(server: Forge, tmp_path: Path) -> None:
    server.issue(9, "It is slow", "Very.")
    server.issue(4, "So is this", repository="o/r")
    run = Run(server, tmp_path)
    wanted = [Issue(repository=r, number=n) for r, n in (("acme/text", 9), ("o/r", 4), ("o/r", 5))]
    found = run.asking.issues(wanted)
    run.asking.end()
    assert {(t.issue.repository, t.title, t.body) for t in found.texts.values()} == {
        ("acme/text", "It is slow", "Very."),
        ("o/r", "So is this", ""),
    }
    assert known(tmp_path).issues == found
    assert f"{server.url}/repos/o/r/issues/5: 404" in run.problems[0]
    server.replies.clear()
    again = Run(server, tmp_path)
    again.asking.issues(wanted)
    assert server.replies == [304, 304, 404]


def test_a_moved_issue_is_followed_on_the_same_server_alone(server: Forge, tmp_path: Path) -> None:
    server.issue(9, "It moved", repository="acme/other")
    moved = Reply(
        status=301, headers={"Location": f"{server.url}/repos/acme/other/issues/9"}, body=b""
    )
    away = Reply(status=301, headers={"Location": "https://example.org/issues/8"}, body=b"")
    server.fault = lambda asked, _: {
        "/repos/acme/text/issues/9": moved,
        "/repos/acme/text/issues/8": away,
    }.get(asked.path)
    run = Run(server, tmp_path, token=TOKEN)
    wanted = [Issue(repository="acme/text", number=n) for n in (8, 9)]
    found = run.asking.issues(wanted)
    text = found.of(wanted[1])
    assert text is not None
    assert text.title == "It moved"
    assert run.problems == [f"{server.url}/repos/acme/text/issues/8: sends on to another server"]


def test_nothing_is_written_when_nothing_is_to_be_kept(server: Forge, tmp_path: Path) -> None:
    assert Run(server, tmp_path, keep=False).pulls() == [1, 2, 3, 4, 5]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("origin", "env", "wanted"),
    [
        ("https://github.com/acme/text", {}, ("https://api.github.com", "")),
        ("git@github.com:acme/text.git", {"GH_TOKEN": " b "}, ("https://api.github.com", "b")),
        ("", {"GH_TOKEN": "b", "GITHUB_TOKEN": "a"}, ("https://api.github.com", "a")),
        (
            "https://git.example.org/acme/text",
            {"GITHUB_API_URL": "https://git.example.org/api/v3/", "GITHUB_TOKEN": "a"},
            ("https://git.example.org/api/v3", "a"),
        ),
    ],
)
def test_the_environment_names_server_and_token(
    origin: str, env: dict[str, str], wanted: tuple[str, str]
) -> None:
    assert server_and_token(origin, env) == wanted


@pytest.mark.parametrize(
    ("origin", "env", "reason"),
    [
        ("https://git.example.org/acme/text", {}, "isn't at github.com: set GITHUB_API_URL"),
        ("https://github.com.example.org/acme/text", {}, "isn't at github.com"),
        ("", {"GITHUB_API_URL": "ftp://x"}, "must be an address"),
        ("", {"GITHUB_API_URL": "https://a:b@x"}, "must be an address"),
        ("", {"GITHUB_API_URL": "http://example.org", "GH_TOKEN": "a"}, "must begin with https"),
    ],
)
def test_a_token_goes_to_no_server_that_was_not_named(
    origin: str, env: dict[str, str], reason: str
) -> None:
    with pytest.raises(KbenchError, match=reason):
        server_and_token(origin, env)


def test_a_path_below_the_servers_address_is_kept(tmp_path: Path) -> None:
    with forge() as made:
        for number in range(1, 4):
            made.pull(number)
        base, made.url = made.url, f"{made.url}/api/v3"
        made.fault = lambda asked, _: (
            None if asked.path.startswith("/api/v3/") else message(404, "elsewhere")
        )
        usual = made._usual
        made._usual = lambda asked: usual(  # type: ignore[method-assign]
            Asked(path=asked.path.removeprefix("/api/v3"), headers=asked.headers)
        )
        assert base
        assert Run(made, tmp_path).pulls() == [1, 2, 3]


# The command.


def kbench(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    none = {"GITHUB_TOKEN": "", "GH_TOKEN": "", "GITHUB_API_URL": "", "NO_COLOR": "1"}
    command = [sys.executable, "-c", main, "mine", *argv]
    whole = {**os.environ, **none, **env}
    return subprocess.run(command, cwd=cwd, env=whole, capture_output=True, text=True, check=False)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """A repository with a squashed change, #3, and one that was rebased: two commits, #4."""
    repository = new_upstream(tmp_path)
    repository.git("remote", "add", "origin", "https://github.com/acme/text.git")
    repository.commit("src/main/kotlin/A.kt", "Begin")
    for subject in ("Keep it (#3)", "Step one", "Step two"):
        repository.later()
        name = subject.split()[1]
        place = repository.root / "src/test/kotlin" / f"{name}Test.kt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{name}\n{name}\n", encoding="utf-8")
        repository.commit("src/main/kotlin/A.kt", subject, text=f"{name}\n{name}\n{name}\n")
    return repository


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    root = tmp_path / "dataset"
    root.mkdir()
    return root


def candidates(dataset: Path) -> list[dict[str, Any]]:
    path = dataset / "mined" / "acme_text" / "candidates.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_the_command_joins_what_github_says(upstream: Upstream, dataset: Path) -> None:
    with forge(token=TOKEN) as server:
        server.pull(3, "Keep it always", body="Fixes #9", labels=[{"name": "bug"}])
        head = upstream.git("rev-parse", "HEAD")
        server.pull(4, "Both steps", merge_commit_sha=head, commits=2)
        server.issue(9, "It is lost", "Often.")
        env = {"GITHUB_API_URL": server.url, "GITHUB_TOKEN": TOKEN}
        done = kbench(str(upstream.root), "--github", "--statements", cwd=dataset, **env)
        assert done.returncode == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        newest, oldest = candidates(dataset)
        assert (newest["id"], newest["title"], len(newest["commits"])) == ("#4", "Both steps", 2)
        assert (oldest["title"], oldest["labels"]) == ("Keep it always", ["bug"])
        assert oldest["issues"] == [{"repository": "acme/text", "number": 9}]
        assert "statements: 1 accepted (1 of issues), 0 rejected, 1 draft" in done.stdout
        # Later runs use it without asking.
        asked = len(server.asked)
        kbench(str(upstream.root), cwd=dataset)
        assert candidates(dataset) == [newest, oldest]
        assert len(server.asked) == asked


def test_an_error_half_way_is_named_and_the_rest_is_mined(
    upstream: Upstream, dataset: Path
) -> None:
    with forge(per_page=1) as server:
        server.pull(3, "Keep it always", updated_at="2025-01-01T00:00:00Z")
        server.pull(4, "Not to be had")
        server.fault = always("pulls?2", message(401, "Bad credentials"))
        argv = (str(upstream.root), "--github", "--format", "json")
        done = kbench(*argv, cwd=dataset, GITHUB_API_URL=server.url)
    assert done.returncode == 0
    assert "no token in GITHUB_TOKEN" in done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert "401: Bad credentials" in problem
    assert f"not known: {problem}" in done.stderr
    assert [each["title"] for each in candidates(dataset)] == ["Keep it always"]


def test_a_dry_run_asks_and_writes_nothing(upstream: Upstream, dataset: Path) -> None:
    with forge() as server:
        server.pull(3, "Keep it always")
        argv = (str(upstream.root), "--github", "--dry-run")
        done = kbench(*argv, cwd=dataset, GITHUB_API_URL=server.url)
    assert done.returncode == 0, done.stderr
    assert list(dataset.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "origin", "reason"),
    [
        (["--pulls", "kbench.toml"], "", "--pulls is in place of --github: give one"),
        ([], "https://git.example.org/acme/text", "isn't at github.com: set GITHUB_API_URL"),
    ],
)
def test_what_can_not_be_asked_is_one_line(
    upstream: Upstream, dataset: Path, more: list[str], origin: str, reason: str
) -> None:
    (dataset / "kbench.toml").touch()
    if origin:
        upstream.git("remote", "set-url", "origin", origin)
    done = kbench(str(upstream.root), "--github", *more, cwd=dataset)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_library_is_one_line_that_names_the_extra(
    upstream: Upstream, dataset: Path
) -> None:
    (dataset / "github.py").write_text("raise ImportError('none')", encoding="utf-8")
    done = kbench(str(upstream.root), "--github", cwd=dataset, PYTHONPATH=str(dataset))
    assert done.returncode == 2
    assert "pip install 'kbench-build[mine]'" in done.stderr
    assert "Traceback" not in done.stderr
