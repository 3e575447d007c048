"""`kbench mine --statements`: real repositories, real judges (a command, a server on loopback)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbench_build.errors import KbenchError
from kbench_build.rim.judge import JudgeError, Said, judge_of
from kbench_build.rim.mine_config import load_mine_config
from kbench_build.rim.mine_judge import JudgeConfig
from kbench_build.rim.presets import read_preset
from kbench_build.rules.issue_records import NONE, Issues, read_issues
from kbench_build.rules.mine_filters import Filters
from kbench_build.rules.path_kinds import Patterns
from kbench_build.rules.statements import Statement
from kbench_build.steps import mine as mining
from kbench_build.steps import state_candidates as step
from tests.forge_kit import Asked, Reply, serving
from tests.upstream_kit import Upstream, new_upstream

FILTERS = Filters(patterns=Patterns(**read_preset("python-pytest")))
BODY = "Adding 1 and 1 gives 0.\n\nFixes #9\n\n<!-- template -->"
ISSUE = {
    "number": 9,
    "title": "1 and 1 is 0",
    "body": "I add 1 and 1 and get 0, see #12.",
    "url": "https://github.com/acme/text/issues/9",
}
KNOWN = read_issues([json.dumps(ISSUE).encode()])
CONFIG = JudgeConfig(command=("judge",), model="m")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """A repository with one merged change, #12, that closes #9."""
    repository = new_upstream(tmp_path)
    repository.git("remote", "add", "origin", "https://github.com/acme/text.git")
    repository.commit("text/adder.py", "Begin", text="def old_name(a, b):\n    return a - b\n")
    repository.later()
    place = repository.root / "tests"
    place.mkdir()
    (place / "test_adder.py").write_text("def test_it():\n    assert total(1, 1) == 2\n")
    fix = "\n\ndef total(left, right):\n    return carry_over(left, right)\n\n\n"
    fix += "def carry_over(left, right):\n    return left + right  # max_retries\n"
    repository.commit("text/adder.py", f"Add properly (#12)\n\n{BODY}", text=fix)
    return repository


def more(repository: Upstream, *numbers: int) -> None:
    """Merged changes on top that close nothing."""
    for number in numbers:
        repository.later()
        (repository.root / "tests" / f"test_{number}.py").write_text(
            "def test_it():\n    assert 1\n"
        )
        repository.commit(
            "text/adder.py", f"Change {number} (#{number})", text=f"x{number} = {number}\n"
        )


class Run:
    """One run of the step over a repository; `asked` are the prompts."""

    def __init__(self, upstream: Upstream, folder: Path, *says: str | Exception) -> None:
        self.upstream, self.folder = upstream, folder
        self.says = list(says)
        self.asked: list[str] = []

    def judge(self, prompt: str) -> Said:
        self.asked.append(prompt)
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return Said(text=said, model="m-1")

    def all(self, issues: Issues = NONE, **more: Any) -> list[step.Stated]:
        kept = mining.mine(self.upstream.root, repository="acme/text", filters=FILTERS).kept
        mining.write(
            mining.mine(self.upstream.root, repository="acme/text", filters=FILTERS), self.folder
        )
        wanted = [
            step.Wanted(
                candidate=each.change,
                fix=each.split.patch("source", "build"),
                test=each.split.patch("test"),
            )
            for each in kept
        ]
        stating = step.Stating(
            clone=self.upstream.root,
            folder=self.folder,
            repository="acme/text",
            issues=issues,
            config=CONFIG if self.says else None,
            judge=self.judge if self.says else None,
        )
        return list(step.state(wanted, replace(stating, **more)))

    def one(self, issues: Issues = NONE, **more: Any) -> Statement:
        (found,) = self.all(issues, **more)
        return found.statement

    @property
    def place(self) -> Path:
        return self.folder / "12"

    @property
    def instruction(self) -> str:
        return (self.place / "instruction.md").read_text(encoding="utf-8")

    @property
    def rejected(self) -> list[dict[str, Any]]:
        path = self.place / "rejected-statements.jsonl"
        return (
            [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        )


def says(text: str) -> str:
    return json.dumps({"statement": text})


def test_the_linked_issues_text_is_the_statement(upstream: Upstream, tmp_path: Path) -> None:
    run = Run(upstream, tmp_path / "m", says("not asked"))
    made = run.one(KNOWN)
    assert (made.outcome, made.source) == ("accepted", "issue")
    assert made.text == "# 1 and 1 is 0\n\nI add 1 and 1 and get 0, see ….\n"
    assert made.issues == ("https://github.com/acme/text/issues/9",)
    assert run.asked == []
    assert run.instruction == made.text
    assert step.read_statement(run.place) == made


def test_without_an_issue_a_judge_writes_it_from_title_and_body(
    upstream: Upstream, tmp_path: Path
) -> None:
    run = Run(upstream, tmp_path / "m", says("# Wrong sums\n\nAdding 1 and 1 gives 0.\n"))
    made = run.one()
    assert (made.outcome, made.source) == ("accepted", "judge")
    assert made.text == "# Wrong sums\n\nAdding 1 and 1 gives 0.\n"
    assert made.judge is not None
    assert (made.judge.command, made.judge.model) == (("judge",), "m-1")
    (prompt,) = run.asked
    assert "Adding 1 and 1 gives 0." in prompt
    patches = [(run.place / f"{name}.patch").read_text() for name in ("fix", "test")]
    lines = {line[1:].strip() for patch in patches for line in patch.splitlines()}
    assert [line for line in lines if len(line) > 3 and line in prompt] == []
    assert "template" not in prompt
    assert "#12" not in prompt


def test_an_issue_that_says_nothing_is_given_to_the_judge_as_well(
    upstream: Upstream, tmp_path: Path
) -> None:
    run = Run(upstream, tmp_path / "m", says("# Wrong sums\n\nIt is old_name's.\n"))
    empty = read_issues([json.dumps({**ISSUE, "body": ""}).encode()])
    assert run.one(empty).outcome == "accepted"
    assert "1 and 1 is 0" in run.asked[0]


def test_a_name_of_the_fix_alone_rejects_and_the_draft_is_kept_with_the_reason(
    upstream: Upstream, tmp_path: Path
) -> None:
    run = Run(upstream, tmp_path / "m", says("# Sums\n\nIt has no max_retries.\n"))
    made = run.one()
    assert made.outcome == "rejected"
    assert made.reason == "names 'max_retries', which stands in the fix alone"
    (kept,) = run.rejected
    assert (kept["text"], kept["reason"]) == (made.text, made.reason)
    # What a person is given to finish isn't the text that tells too much.
    assert run.instruction.startswith(step.UNFINISHED)
    assert "max_retries" not in run.instruction


def test_a_name_that_the_base_holds_in_a_file_or_a_path_does_not(
    upstream: Upstream, tmp_path: Path
) -> None:
    root = upstream.root
    upstream.git("checkout", "-q", "-b", "old", "HEAD~1")
    upstream.commit("docs/carry_over.md", "More", text="max_retries is read\n")
    fix = "def carry_over(): return max_retries\n"
    (root / "tests").mkdir(exist_ok=True)
    (root / "tests" / "test_more.py").write_text("def test_more():\n    assert not 1\n")
    upstream.commit("text/adder.py", "Add (#12)\n\nSlow", text=fix)
    run = Run(upstream, tmp_path / "m", says("# Slow\n\nmax_retries and `carry_over` are slow.\n"))
    assert run.one().outcome == "accepted"


def test_what_a_judge_says_of_the_fix_itself_is_cut(upstream: Upstream, tmp_path: Path) -> None:
    head = upstream.git("rev-parse", "HEAD")
    text = f"# Sums\n\nWrong since {head[:10]}.\n\nSee https://github.com/acme/text/pull/12\n"
    made = Run(upstream, tmp_path / "m", says(text)).one()
    assert (made.outcome, made.text) == ("accepted", "# Sums\n\nWrong since ….\n\n")


def test_an_issues_text_with_a_line_of_the_fix_is_rejected_and_the_judge_is_asked(
    upstream: Upstream, tmp_path: Path
) -> None:
    body = "It is wrong. Mine:\n\n    return carry_over(left, right)\n"
    issues = read_issues([json.dumps({**ISSUE, "body": body}).encode()])
    run = Run(upstream, tmp_path / "m", says("# Sums\n\nAdding 1 and 1 gives 0.\n"))
    made = run.one(issues)
    assert (made.outcome, made.source) == ("accepted", "judge")
    assert "carry_over" not in run.asked[0]
    (kept,) = run.rejected
    assert kept["source"] == "issue"
    assert "holds a line of the fix" in kept["reason"]


def test_commits_after_the_base_are_cut_from_an_issue(upstream: Upstream, tmp_path: Path) -> None:
    upstream.later()
    later = upstream.commit("README.md", "Later")
    body = f"Wrong, but not at {later[:12]}."
    issues = read_issues([json.dumps({**ISSUE, "body": body}).encode()])
    made = Run(upstream, tmp_path / "m").one(issues)
    assert made.text == "# 1 and 1 is 0\n\nWrong, but not at ….\n"


# Drafts, which people finish.


def test_without_issue_and_judge_there_is_a_draft_that_a_person_finishes(
    upstream: Upstream, tmp_path: Path
) -> None:
    run = Run(upstream, tmp_path / "m")
    made = run.one()
    assert (made.outcome, made.source) == ("draft", "draft")
    assert made.reason == (
        "the text of acme/text#9 isn't at hand (--github or --issues), and there is no judge"
    )
    assert run.instruction == (
        f"{step.UNFINISHED}\n\n# Add properly\n\nAdding 1 and 1 gives 0.\n\nFixes #9\n"
    )
    place = run.place / "instruction.md"
    place.write_text(f"{step.UNFINISHED}\nStill at it\n", encoding="utf-8")
    assert run.one().reason == "instruction.md still has the line that says it is a draft"
    place.write_text("# Sums\n\nAdding 1 and 1 gives 0.\n", encoding="utf-8")
    done = run.one()
    assert (done.outcome, done.source) == ("accepted", "draft")
    assert done.text == run.instruction == "# Sums\n\nAdding 1 and 1 gives 0.\n"
    # And it stays, though nothing was edited since.
    assert run.one() == done


def test_what_a_person_wrote_is_held_to_the_same(upstream: Upstream, tmp_path: Path) -> None:
    run = Run(upstream, tmp_path / "m")
    run.one()
    place = run.place / "instruction.md"
    text = "# Sums\n\nThere is no max_retries, see #12.\n"
    place.write_text(text, encoding="utf-8")
    made = run.one()
    assert made.outcome == "rejected"
    assert "names the change that fixes it: #12" in made.reason
    assert "'max_retries'" in made.reason
    assert run.instruction == text
    place.write_text("# Sums\n\nThey are wrong.\n", encoding="utf-8")
    assert run.one().outcome == "accepted"
    assert len(run.rejected) == 1


def test_a_person_may_change_an_accepted_statement(upstream: Upstream, tmp_path: Path) -> None:
    run = Run(upstream, tmp_path / "m")
    run.one(KNOWN)
    place = run.place / "instruction.md"
    place.write_text("# 1 and 1 is 0\r\n\r\nBetter said.\r\n", encoding="utf-8", newline="")
    made = run.one(KNOWN)
    assert (made.outcome, made.source) == ("accepted", "draft")
    assert made.text == "# 1 and 1 is 0\n\nBetter said.\n"
    place.unlink()
    assert run.one(KNOWN).source == "issue"


def test_tests_that_need_an_unsaid_name_are_noted(upstream: Upstream, tmp_path: Path) -> None:
    made = Run(upstream, tmp_path / "m").one(KNOWN)
    assert made.notes == ("needs 'total', which only the fix declares",)


# Going on.


def test_a_statement_whose_inputs_are_unchanged_is_not_asked_again(
    upstream: Upstream, tmp_path: Path
) -> None:
    run = Run(upstream, tmp_path / "m", says("# Sums\n\nWrong.\n"), says("# Other\n\nWrong.\n"))
    first = run.one()
    (again,) = run.all()
    assert again.kept
    assert (again.statement, len(run.asked)) == (first, 1)
    changed = run.one(config=replace(CONFIG, model="another"))
    assert (changed.text, len(run.asked)) == ("# Other\n\nWrong.\n", 2)


def test_a_rejected_one_is_not_asked_again_either(upstream: Upstream, tmp_path: Path) -> None:
    text = says("It has no max_retries")
    run = Run(upstream, tmp_path / "m", text, text)
    assert run.one().outcome == "rejected"
    assert run.one().outcome == "rejected"
    assert (len(run.asked), len(run.rejected)) == (1, 1)
    # Made anew, the same text with the same reason is kept once.
    (run.place / "instruction.md").unlink()
    assert run.one().outcome == "rejected"
    assert (len(run.asked), len(run.rejected)) == (2, 1)


def test_a_judge_who_refuses_leaves_a_draft(upstream: Upstream, tmp_path: Path) -> None:
    run = Run(upstream, tmp_path / "m", '{"refused": "It says nothing of a user."}')
    made = run.one()
    assert (made.outcome, made.source) == ("draft", "draft")
    assert made.reason == "the judge refused: It says nothing of a user."
    assert run.rejected[0]["judge"]["model"] == "m-1"


def test_a_judge_who_is_not_heard_is_asked_by_the_next_run(
    upstream: Upstream, tmp_path: Path
) -> None:
    run = Run(upstream, tmp_path / "m", JudgeError("is out"), says("# Sums\n\nWrong.\n"))
    made = run.one()
    assert (made.outcome, made.reason, made.key) == ("draft", "the judge: is out", "")
    assert run.one().outcome == "accepted"


def test_a_judge_is_left_alone_after_three_failures(upstream: Upstream, tmp_path: Path) -> None:
    more(upstream, *range(20, 26))
    run = Run(upstream, tmp_path / "m", *[JudgeError("is out")] * 9)
    found = run.all()
    assert len(run.asked) == 3
    assert len(found) == 7
    assert "isn't asked any more" in found[-1].statement.reason


def test_several_are_asked_at_once_and_come_in_order(upstream: Upstream, tmp_path: Path) -> None:
    more(upstream, *range(20, 24))
    run = Run(upstream, tmp_path / "m")

    def slow(_: str) -> Said:
        time.sleep(0.3)
        return Said(text=says("# A\n\nB\n"))

    kept = mining.mine(upstream.root, repository="acme/text", filters=FILTERS).kept
    wanted = [step.Wanted(candidate=k.change, fix=b"", test=b"") for k in kept]
    stating = step.Stating(
        clone=upstream.root,
        folder=run.folder,
        repository="acme/text",
        issues=NONE,
        config=CONFIG,
        judge=slow,
    )
    began = time.monotonic()
    found = list(step.state(wanted, stating, jobs=5))
    assert time.monotonic() - began < 1.4
    assert [each.id for each in found] == ["#23", "#22", "#21", "#20", "#12"]


def test_a_broken_statement_file_is_made_anew(upstream: Upstream, tmp_path: Path) -> None:
    run = Run(upstream, tmp_path / "m")
    made = run.one(KNOWN)
    for broken in (b"{", b"[]", b'{"key": 1}'):
        (run.place / "statement.json").write_bytes(broken)
        (run.place / "instruction.md").unlink()
        assert run.one(KNOWN) == made


def test_a_message_that_is_no_utf_8_is_a_draft_all_the_same(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.later()
    (upstream.root / "tests" / "test_b.py").write_text("def test_it():\n    assert 1\n")
    (upstream.root / "text" / "b.py").write_text("x = 1\n")
    (tmp_path / "message").write_bytes(b"Caf\xe9 (#13)\n\nfalsch")
    upstream.git("add", "-A")
    # Of an encoding that git doesn't know it leaves the bytes as they are.
    encoding = ("-c", "i18n.commitEncoding=x-none")
    upstream.git(*encoding, "commit", "-q", "-F", str(tmp_path / "message"))
    found = Run(upstream, tmp_path / "m").all()
    assert found[0].statement.text == "# Caf\ufffd\n\nfalsch\n"


# The judge itself.


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_a_command_reads_the_prompt_and_writes_its_answer() -> None:
    config = JudgeConfig(command=python("import sys; print(sys.stdin.read().upper())"))
    assert judge_of(config)("é $(x) 'y'").text.strip() == "É $(X) 'Y'"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/no/such/judge",), "couldn't start: No such file or directory"),
        (python("import sys; sys.exit('out of luck')"), "ended with exit code 1: out of luck"),
        (python("import time; time.sleep(60)"), "didn't end within 2 s"),
        (python("while True: print('x' * 65536)"), "wrote more than 1048576 bytes"),
        (
            python("import subprocess, sys; subprocess.Popen(['sleep', '60']); sys.exit(3)"),
            "ended with exit code 3",
        ),
    ],
)
def test_a_command_that_fails_is_a_reason_in_time(command: Sequence[str], reason: str) -> None:
    began = time.monotonic()
    with pytest.raises(JudgeError, match=reason):
        judge_of(JudgeConfig(command=tuple(command), timeout_sec=2))("?")
    assert time.monotonic() - began < 15


def test_what_a_command_started_ends_with_it(tmp_path: Path) -> None:
    code = f"""
import subprocess, sys, time
child = subprocess.Popen(["sleep", "60"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    with pytest.raises(JudgeError, match="didn't end within 1 s"):
        judge_of(JudgeConfig(command=python(code), timeout_sec=1))("?")
    pid = int((tmp_path / "pid").read_text())
    for _ in range(50):
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        if not state.stdout.strip() or state.stdout.startswith("Z"):
            break
        time.sleep(0.1)
    else:
        pytest.fail("it is still running")


def completion(text: str) -> Reply:
    message = {"role": "assistant", "content": text}
    value = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-2024",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    return Reply(body=json.dumps(value).encode())


def test_an_endpoint_is_asked_with_key_model_and_prompt() -> None:
    asked: list[Asked] = []

    def reply(request: Asked) -> Reply:
        asked.append(request)
        return completion("it crashes")

    with serving(reply) as url:
        config = JudgeConfig(endpoint=f"{url}/v1", model="m", key_env="KEY")
        said = judge_of(config, {"KEY": "of nobody"})("What is wrong?")
    assert said == Said(text="it crashes", model="m-2024")
    (request,) = asked
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer of nobody"
    body = json.loads(request.body)
    assert body["model"] == "m"
    assert body["messages"] == [{"role": "user", "content": "What is wrong?"}]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (
            Reply(status=401, body=b'{"error": {"message": "Bad key nobodys-key"}}'),
            "401: .*Bad key …",
        ),
        (Reply(status=404, body=b"{}"), "404"),
        (Reply(body=b"{"), "127.0.0.1"),
        (Reply(body=b'{"choices": []}'), "the answer is no chat completion"),
        (Reply(body=b'{"choices": [{"message": {"content": null}}]}'), "is no chat completion"),
        (Reply(body=b"[]"), "the answer is no chat completion"),
    ],
)
def test_an_endpoint_that_fails_is_a_reason(reply: Reply, reason: str) -> None:
    with serving(lambda _: reply) as url:
        config = JudgeConfig(endpoint=url, model="m", key_env="KEY", timeout_sec=20)
        with pytest.raises(JudgeError, match=reason) as error:
            judge_of(config, {"KEY": "nobodys-key"})("?")
    assert "nobodys-key" not in str(error.value)


def test_an_endpoint_that_is_busy_is_asked_again() -> None:
    replies = [Reply(status=429, headers={"Retry-After": "0"}), Reply(status=503), completion("x")]
    with serving(lambda _: replies.pop(0)) as url:
        assert judge_of(JudgeConfig(endpoint=url, model="m"))("?").text == "x"


def test_an_endpoint_that_does_not_answer_in_time_is_a_reason() -> None:
    def reply(_: Asked) -> Reply:
        time.sleep(3)
        return completion("late")

    with serving(reply) as url:
        began = time.monotonic()
        with pytest.raises(JudgeError, match=r"didn't answer within 0.5 s|timed out"):
            judge_of(JudgeConfig(endpoint=url, model="m", timeout_sec=0.5))("?")
        assert time.monotonic() - began < 2


def test_a_key_that_is_not_set_is_one_line() -> None:
    config = JudgeConfig(endpoint="http://127.0.0.1:9", model="m", key_env="NO_SUCH_KEY")
    with pytest.raises(KbenchError, match="NO_SUCH_KEY isn't set in the environment"):
        judge_of(config, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("judge = 3", "mine.judge: must be a table"),
        ("[mine.judge]\ncomand = ['x']", "mine.judge.comand: is no key here; known are command"),
        ("[mine.judge]\ncommand = 'x'", "mine.judge.command: must be a list of strings"),
        ("[mine.judge]\ncommand = ['']", "mine.judge.command: must be a list of strings"),
        ("[mine.judge]\nmodel = 'x'", "mine.judge: must name either a command or an endpoint"),
        ("[mine.judge]\nendpoint = 'x'\nmodel = 'm'", "must begin with http:// or https://"),
        ("[mine.judge]\nendpoint = 'https://x'", "mine.judge.model: is missing"),
        ("[mine.judge]\ncommand = ['x']\ntimeout_sec = 0", "mine.judge.timeout_sec: must be"),
        ("[mine.judge]\ncommand = ['x']\nmodel = 1", "mine.judge.model: must be a string"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    head = "" if text.startswith("[") else "[mine]\n"
    (tmp_path / "kbench.toml").write_text(head + text, encoding="utf-8")
    with pytest.raises(KbenchError, match=message):
        load_mine_config(tmp_path)


# The command.


def kbench(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    whole = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **env}
    command = [sys.executable, "-c", main, "mine", *argv]
    return subprocess.run(command, cwd=cwd, env=whole, capture_output=True, text=True, check=False)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    root = tmp_path / "dataset"
    root.mkdir()
    judge = json.dumps(
        list(python('print(\'{"statement": "# Sums\\\\n\\\\nWrong.", "model": "x"}\')'))
    )
    text = f'[mine]\npreset = "python-pytest"\n[mine.judge]\ncommand = {judge}\n'
    (root / "kbench.toml").write_text(text, encoding="utf-8")
    return root


def test_the_command_asks_the_configured_judge(upstream: Upstream, dataset: Path) -> None:
    done = kbench(str(upstream.root), "--statements", cwd=dataset)
    assert done.returncode == 0, done.stderr
    assert "[1/1] accepted  #12      by the judge" in done.stderr
    assert "statements: 1 accepted (1 by the judge), 0 rejected, 0 drafts" in done.stdout
    made = step.read_statement(dataset / "mined" / "acme_text" / "12")
    assert made is not None
    assert made.judge is not None
    assert made.judge.model == "x"


def test_the_command_takes_issues_of_a_file(upstream: Upstream, dataset: Path) -> None:
    issues = dataset / "issues.jsonl"
    issues.write_text(f"{json.dumps(ISSUE)}\n{{\n", encoding="utf-8")
    argv = (str(upstream.root), "--statements", "--issues", str(issues), "--format", "json")
    done = kbench(*argv, cwd=dataset)
    assert "issues.jsonl: line 2: is no JSON" in done.stderr
    assert json.loads(done.stdout)["statements"]["accepted_from"] == {"issue": 1}


def test_the_command_says_what_is_to_finish(upstream: Upstream, dataset: Path) -> None:
    (dataset / "kbench.toml").write_text('[mine]\npreset = "python-pytest"\n', encoding="utf-8")
    done = kbench(str(upstream.root), "--statements", cwd=dataset)
    assert done.returncode == 0
    assert "to finish mined/acme_text/12/instruction.md: the text of acme/text#9" in done.stdout


def test_a_judge_that_is_not_there_is_exit_1(upstream: Upstream, dataset: Path) -> None:
    text = '[mine]\npreset = "python-pytest"\n[mine.judge]\ncommand = ["/no/such"]\n'
    (dataset / "kbench.toml").write_text(text, encoding="utf-8")
    done = kbench(str(upstream.root), "--statements", cwd=dataset)
    assert done.returncode == 1
    assert "couldn't start" in done.stdout


def test_a_dry_run_makes_no_statements(upstream: Upstream, dataset: Path) -> None:
    done = kbench(str(upstream.root), "--statements", "--dry-run", cwd=dataset)
    assert done.returncode == 2
    assert "--statements keeps what it finds" in done.stderr


LOGGING = """
import os, sys, time
with open({log!r}, "a") as log:
    log.write(sys.stdin.read().rpartition('"title": ')[2].splitlines()[0] + chr(10))
time.sleep({seconds})
print('{{"statement": "# Sums"}}')
"""


def begun(upstream: Upstream, dataset: Path, *argv: str, seconds: float) -> subprocess.Popen[str]:
    """The command, at work with a judge who logs what it is asked."""
    log = dataset / "log"
    judge = json.dumps(list(python(LOGGING.format(log=str(log), seconds=seconds))))
    text = f'[mine]\npreset = "python-pytest"\n[mine.judge]\ncommand = {judge}\n'
    (dataset / "kbench.toml").write_text(text, encoding="utf-8")
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", main, "mine", str(upstream.root), "--statements", *argv]
    null = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=dataset, stdout=null, stderr=null, text=True)


def asked(dataset: Path, number: int = 0) -> list[str]:
    """What the judge was asked about, once it is so many."""
    log = dataset / "log"
    for _ in range(300):
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        if len(lines) >= number:
            return lines
        time.sleep(0.1)
    pytest.fail(f"asked {len(lines)} times in 30 s")


def test_a_run_that_was_killed_goes_on_with_what_is_left(upstream: Upstream, dataset: Path) -> None:
    more(upstream, 20, 21, 22, 23)
    killed = begun(upstream, dataset, seconds=0.3)
    asked(dataset, 3)
    killed.kill()
    killed.wait()
    before = asked(dataset)
    assert begun(upstream, dataset, seconds=0.3).wait(60) == 0
    after = asked(dataset)
    assert len(set(after)) == 5
    # Only the one that it was at is asked again.
    assert len(after) <= 6
    assert len(before) < 5


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_an_interrupted_run_ends_at_once_and_its_judge_with_it(
    upstream: Upstream, dataset: Path, jobs: str
) -> None:
    more(upstream, 20, 21, 22, 23)
    run = begun(upstream, dataset, "-n", jobs, seconds=60)
    asked(dataset, int(jobs))
    run.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert run.wait(60) == 130
    assert time.monotonic() - began < 10
